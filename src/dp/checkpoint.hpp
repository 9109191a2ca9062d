// Saves and loads what ranks own of the parameters. checkpoint.cpp says which files there are, saved.hpp what they
// hold.
#pragma once

#include "dp/ranks.hpp"
#include "dp/saved.hpp"
#include "dp/storage.hpp"

namespace tutti::dp {

/// Collective, while no job is under way. m: the step, the updates and the scale; the rest is filled in. If a file
/// can't be written, all ranks throw tuttiInvalidUsage, and the old checkpoint holds.
void save_checkpoint(const std::string& path, const Ranks& ranks, const Storage& storage, Manifest m);

/// Collective, while no job is under way. Checks all files on all ranks; if they are not right, all ranks throw
/// tuttiInvalidUsage, and nothing has changed. Then sets the values and states that this rank owns.
Manifest load_checkpoint(const std::string& path, const Ranks& ranks, Storage& storage);

}  // namespace tutti::dp
