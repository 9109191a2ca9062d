// tutti-tune --hosts: what paths between hosts take.
#pragma once

#include "plan/tuning.hpp"
#include "tune/options.hpp"

namespace tune {

/// One of the ranks that a launcher has started on several hosts. Every transport in turn, all pairs of hosts; the
/// first rank of each host writes the same figures into that host's file. Rank 0 prints them. Throws std::exception.
void measure_paths(const Options& options);

/// What a file knows; nothing, with a word on stderr, if it can't be read.
tutti::Tuning known_in(const std::string& path);

}  // namespace tune
