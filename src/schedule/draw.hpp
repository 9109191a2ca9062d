// Draws a set of programs: ranks are rows, time goes to the right, a box is a step, an arrow is a message.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "schedule/program.hpp"

namespace tutti {

/// An SVG picture of programs. Every step and every message takes one unit of time. Colours tell chunks apart. Throws
/// tuttiInvalidArgument if the programs do not match or do not finish.
std::string svg_of(std::span<const Program> programs, std::string_view title);

}  // namespace tutti
