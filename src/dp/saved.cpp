#include "dp/saved.hpp"

#include <algorithm>
#include <climits>
#include <cmath>

#include "dp/hash.hpp"
#include "dp/json.hpp"

namespace tutti::dp {
namespace {

constexpr std::uint64_t format = 2, most_steps = 1ull << 62, most_ranks = 1 << 20;
constexpr std::string_view ending = ".safetensors";

Json files_of(const std::map<std::string, Manifest::Where>& tensors) {
    Json all = Json::object();
    for (const auto& [name, where] : tensors) all[name] = where.file;
    return all;
}

Json sums_of(const std::map<std::string, Manifest::Where>& tensors) {
    Json all = Json::object();
    for (const auto& [name, where] : tensors) all[name] = hex_of(where.sum);
    return all;
}

std::map<std::string, Manifest::Where> tensors_from(const Json& files, const Json& sums, std::uint64_t number,
                                                    const Fields& fields) {
    std::map<std::string, Manifest::Where> all;
    for (const auto& [name, file] : files.items()) {
        const auto sum = sums.find(name);
        if (sum == sums.end()) fields.wrong("'" + name + "' has no sum");
        Manifest::Where where{fields.words(file, "a file"), fields.hex(*sum, "a sum")};
        std::uint64_t its = 0;
        if (!is_shard(where.file, &its) || its != number) fields.wrong("'" + where.file + "' is no file of this save");
        all.emplace(name, std::move(where));
    }
    if (sums.size() != all.size()) fields.wrong("there are sums of tensors that are in no file");
    return all;
}

/// Of everything but itself.
std::string hash_of(const Json& index) {
    Json rest = index;
    rest["metadata"]["tutti"].erase("hash");
    return hex_of(hash(dumped(rest)));
}

}  // namespace

std::string shard_name(const char* kind, std::uint64_t number, std::size_t index, std::size_t count) {
    return text("%s-%016" PRIx64 "-%05zu-of-%05zu.safetensors", kind, number, index + 1, count);
}

bool is_shard(const std::string& file, std::uint64_t* number) {
    for (const std::string_view kind : {"model-", "optimizer-"}) {
        if (!file.starts_with(kind) || !file.ends_with(ending) || file.size() < kind.size() + 17 + ending.size())
            continue;
        const std::string digits = file.substr(kind.size(), 16);
        const auto place = file.substr(kind.size() + 16, file.size() - kind.size() - 16 - ending.size());
        if (digits.find_first_not_of("0123456789abcdef") != std::string::npos) continue;
        if (place[0] != '-' || place.find_first_not_of("-of0123456789") != std::string::npos) continue;
        *number = std::stoull(digits, nullptr, 16);
        return true;
    }
    return false;
}

std::string text_of(const Manifest& m) {
    Json ours = {{"format", format},
                 {"number", hex_of(m.number)},
                 {"ranks", m.ranks},
                 {"step", m.step},
                 {"learning_rate", m.learning_rate},
                 {"updates", m.updates},
                 {"notes", m.notes},
                 {"groups", Json::array()},
                 {"model_sums", sums_of(m.model)},
                 {"optimizer_map", files_of(m.optimizer)},
                 {"optimizer_sums", sums_of(m.optimizer)}};
    for (const tuttiDpGroup_t& g : m.groups)
        ours["groups"].push_back({{"learning_rate_factor", g.learningRateFactor}, {"weight_decay", g.weightDecay}});
    if (m.scale.scale > 0) ours["loss_scale"] = {{"scale", m.scale.scale}, {"good_steps", m.scale.good}};
    Json index = {{"metadata", {{"total_size", m.bytes}, {"tutti", ours}}}, {"weight_map", files_of(m.model)}};
    index["metadata"]["tutti"]["hash"] = hash_of(index);
    return index.dump(1) + "\n";
}

Manifest manifest_from(std::string_view words, const std::string& path, bool hashed) {
    const Json index = parse_strictly(words, path);
    const Fields all(index, path);
    const Fields metadata(all.object("metadata"), path);
    if (!metadata.has("tutti"))
        fail(tuttiInvalidUsage,
             "tuttiDpLoad: '%s' is of safetensors files that tuttiDpSave has not written: there is no step, and no "
             "state of an optimizer",
             path.c_str());
    const Fields ours(metadata.object("tutti"), path);
    if (const std::uint64_t its = ours.number("format", UINT64_MAX); its != format)
        fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' has the format %" PRIu64 "; this version reads %" PRIu64,
             path.c_str(), its, format);
    if (hashed && ours.words(ours.at("hash"), "hash") != hash_of(index))
        fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is torn or was changed", path.c_str());
    Manifest m;
    m.number = ours.hex(ours.at("number"), "number");
    m.ranks = static_cast<int>(ours.number("ranks", most_ranks));
    m.step = static_cast<long long>(ours.number("step", most_steps));
    m.learning_rate = ours.real(ours.at("learning_rate"), "learning_rate");
    m.bytes = metadata.number("total_size", UINT64_MAX);
    for (const auto& [name, count] : ours.object("updates").items())
        m.updates[name] = static_cast<long long>(ours.number(count, "updates", most_steps));
    for (const auto& [key, note] : ours.object("notes").items()) m.notes[key] = ours.words(note, "a note");
    if (!ours.at("groups").is_array()) ours.wrong("'groups' is no list");
    for (const Json& group : ours.at("groups")) {
        const Fields its(group, path);
        m.groups.push_back({its.real(its.at("learning_rate_factor"), "learning_rate_factor"),
                            its.real(its.at("weight_decay"), "weight_decay"), 0, 0});
    }
    if (ours.has("loss_scale")) {
        const Fields its(ours.object("loss_scale"), path);
        m.scale = {its.real(its.at("scale"), "scale"), static_cast<int>(its.number("good_steps", INT_MAX))};
        if (!(m.scale.scale > 0 && std::isfinite(m.scale.scale))) its.wrong("the scale is not a positive number");
    }
    m.model = tensors_from(all.object("weight_map"), ours.object("model_sums"), m.number, ours);
    m.optimizer = tensors_from(ours.object("optimizer_map"), ours.object("optimizer_sums"), m.number, ours);
    return m;
}

}  // namespace tutti::dp
