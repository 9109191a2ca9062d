// The index of a checkpoint, `path`/model.safetensors.index.json. It names the files, as readers of sharded safetensors
// expect, and has under "metadata" what only the layer needs. Everything that is read is checked.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dp/loss_scale.hpp"
#include "tutti/dp.h"

namespace tutti::dp {

inline constexpr const char* index_name = "model.safetensors.index.json";

inline std::string index_path(const std::string& path) {
    return path + "/" + index_name;
}

using Notes = std::map<std::string, std::string>;

/// The contents of the index.
struct Manifest {
    std::uint64_t number = 0;  // random, different in every save; part of the files' names
    int ranks = 0;             // how many ranks have saved
    long long step = 0;
    double learning_rate = 0;
    std::vector<tuttiDpGroup_t> groups;
    ScaleState scale;                          // of losses
    std::map<std::string, long long> updates;  // of parameters whose number of updates is not `step`
    Notes notes;
    struct Where {
        std::string file;
        std::uint64_t sum = 0;  // sum_of() the whole tensor
    };
    std::map<std::string, Where> model, optimizer;  // by tensor
    std::uint64_t bytes = 0;                        // of the model's tensors
};

/// The index as JSON. Throws tuttiInvalidArgument if a name is not UTF-8.
std::string text_of(const Manifest& manifest);

/// Reads an index. path: for error texts. hashed: check the hash at its end. Throws tuttiInvalidUsage if this is not a
/// checkpoint of the layer, is torn, or has an unexpected field.
Manifest manifest_from(std::string_view text, const std::string& path, bool hashed = true);

/// "<kind>-<number>-00001-of-00004.safetensors"; kind: model or optimizer.
std::string shard_name(const char* kind, std::uint64_t number, std::size_t index, std::size_t count);

/// Whether a file of this name belongs to a save. *number: the save's.
bool is_shard(const std::string& file, std::uint64_t* number);

}  // namespace tutti::dp
