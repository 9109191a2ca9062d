// What happened in a world, drawn: ranks as rows, time to the right.
#pragma once

#include <span>
#include <string>

#include "world.hpp"

namespace sim {

/// An SVG file. Where nothing happens for long, time is drawn shorter.
std::string picture_of(std::span<const Event> events, int ranks, const std::string& title, const std::string& verdict);

}  // namespace sim
