// A set of programs as a picture: ranks are rows, time goes to the right, a box is a step, an arrow a message.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "schedule/program.hpp"

namespace tutti {

/// SVG of programs that finish (see verify.hpp). Every step takes one unit of time, and so does every message, so the
/// width is what the programs themselves demand. Colours tell chunks apart.
std::string svg_of(std::span<const Program> programs, std::string_view title);

}  // namespace tutti
