// Draws what happened in a world: ranks are rows, time goes to the right.
#pragma once

#include <span>
#include <string>

#include "world.hpp"

namespace sim {

/// The picture as SVG. Long times in which nothing happens are drawn shorter.
std::string picture_of(std::span<const Event> events, int ranks, const std::string& title, const std::string& verdict);

}  // namespace sim
