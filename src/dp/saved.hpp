// The index of a checkpoint, `path`/model.safetensors.index.json, which names its files: what readers of sharded
// safetensors look for, and under "metadata" what only the layer needs. Nothing that is read is believed.
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

struct Manifest {
    std::uint64_t number = 0;  // another one in every save, and part of its files' names
    int ranks = 0;  // that have saved
    long long step = 0;
    double learning_rate = 0;
    std::vector<tuttiDpGroup_t> groups;
    ScaleState scale;                          // of losses
    std::map<std::string, long long> updates;  // of parameters that had not one in every step
    Notes notes;
    struct Where {
        std::string file;
        std::uint64_t sum = 0;  // sum_of() the tensor
    };
    std::map<std::string, Where> model, optimizer;  // by tensor
    std::uint64_t bytes = 0;                        // of the model's tensors
};

/// Throws tuttiInvalidArgument: a name is not UTF-8.
std::string text_of(const Manifest& manifest);

/// path is for error texts. Throws tuttiInvalidUsage: it is no checkpoint of the layer's, is torn, or a field is not
/// what was expected there. hashed: whether to look at the hash that ends it.
Manifest manifest_from(std::string_view text, const std::string& path, bool hashed = true);

/// "<kind>-<number>-00001-of-00004.safetensors"; kind: model or optimizer.
std::string shard_name(const char* kind, std::uint64_t number, std::size_t index, std::size_t count);

/// Whether a file of this name belongs to a save, and to which.
bool is_shard(const std::string& file, std::uint64_t* number);

}  // namespace tutti::dp
