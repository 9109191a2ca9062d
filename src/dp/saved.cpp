#include "dp/saved.hpp"

#include <algorithm>
#include <climits>
#include <cmath>

#include "dp/hash.hpp"
#include "dp/json.hpp"

namespace tutti::dp {
namespace {

constexpr std::uint64_t format = 3, most_steps = 1ull << 62, most_ranks = 1 << 20;
constexpr std::string_view ending = ".safetensors";

Json whole(std::uint64_t number) {
    return json_whole(static_cast<std::int64_t>(number));
}

Json an_object() {
    Json all;
    all.kind = Json::Kind::object;
    return all;
}

Json files_of(const std::map<std::string, Manifest::Where>& tensors) {
    Json all = an_object();
    for (const auto& [name, where] : tensors) all.add(name, json_text(where.file));
    return all;
}

Json sums_of(const std::map<std::string, Manifest::Where>& tensors) {
    Json all = an_object();
    for (const auto& [name, where] : tensors) all.add(name, json_text(hex_of(where.sum)));
    return all;
}

std::map<std::string, Manifest::Where> tensors_from(const Json& files, const Json& sums, std::uint64_t number,
                                                    const Fields& fields) {
    std::map<std::string, Manifest::Where> all;
    for (std::size_t i = 0; i < files.items.size(); ++i) {
        const std::string& file = fields.words(files.items[i], "a file");
        std::uint64_t its = 0;
        if (!is_shard(file, &its) || its != number) fields.wrong("'" + file + "' is no file of this save");
        all.emplace(files.keys[i], Manifest::Where{file, 0});
    }
    for (std::size_t i = 0; i < sums.items.size(); ++i) {
        const auto found = all.find(sums.keys[i]);
        if (found == all.end()) fields.wrong("there are sums of tensors that are in no file");
        found->second.sum = fields.hex(sums.items[i], "a sum");
    }
    if (sums.items.size() != all.size()) fields.wrong("there are tensors that have no sum");
    return all;
}

/// Removes a field from an object that has it.
void take_out(Json& object, const char* key) {
    const auto found = std::ranges::find(object.keys, key);
    object.items.erase(object.items.begin() + (found - object.keys.begin()));
    object.keys.erase(found);
}

Json& field_of(Json& object, const char* key) {
    return object.items[static_cast<std::size_t>(std::ranges::find(object.keys, key) - object.keys.begin())];
}

/// Removes the hash from an index. Throws if it is not the hash of everything else in it.
void check_hash(Json& index, const std::string& path) {
    Json& ours = field_of(field_of(index, "metadata"), "tutti");
    const Fields fields(ours, path);
    const std::string sum = fields.words(fields.at("hash"), "hash");
    take_out(ours, "hash");
    if (sum != hex_of(hash(dumped(index))))
        fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is torn or was changed", path.c_str());
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
    Json updates = an_object(), notes = an_object(), groups, index, metadata, ours;
    for (const auto& [name, count] : m.updates) updates.add(name, json_whole(count));
    for (const auto& [key, note] : m.notes) notes.add(key, json_text(note));
    groups.kind = Json::Kind::array;
    for (const tuttiDpGroup_t& g : m.groups) {
        Json& its = groups.items.emplace_back();
        its.add("learning_rate_factor", json_fraction(g.learningRateFactor));
        its.add("weight_decay", json_fraction(g.weightDecay));
    }
    ours.add("format", whole(format));
    ours.add("number", json_text(hex_of(m.number)));
    ours.add("ranks", json_whole(m.ranks));
    ours.add("step", json_whole(m.step));
    ours.add("learning_rate", json_fraction(m.learning_rate));
    ours.add("updates", std::move(updates));
    ours.add("notes", std::move(notes));
    ours.add("groups", std::move(groups));
    ours.add("model_sums", sums_of(m.model));
    ours.add("optimizer_map", files_of(m.optimizer));
    ours.add("optimizer_sums", sums_of(m.optimizer));
    if (m.scale.scale > 0) {
        Json scale;
        scale.add("scale", json_fraction(m.scale.scale));
        scale.add("good_steps", json_whole(m.scale.good));
        ours.add("loss_scale", std::move(scale));
    }
    metadata.add("total_size", whole(m.bytes));
    metadata.add("tutti", std::move(ours));
    index.add("metadata", std::move(metadata));
    index.add("weight_map", files_of(m.model));
    std::string sum = hex_of(hash(dumped(index)));
    field_of(field_of(index, "metadata"), "tutti").add("hash", json_text(std::move(sum)));
    return dumped(index, true) + "\n";
}

Manifest manifest_from(std::string_view words, const std::string& path, bool hashed) {
    Json index = parse_strictly(words, path);
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
    if (hashed) check_hash(index, path);
    Manifest m;
    m.number = ours.hex(ours.at("number"), "number");
    m.ranks = static_cast<int>(ours.number("ranks", most_ranks));
    m.step = static_cast<long long>(ours.number("step", most_steps));
    m.learning_rate = ours.real(ours.at("learning_rate"), "learning_rate");
    m.bytes = metadata.number("total_size", UINT64_MAX);
    const Json &updates = ours.object("updates"), &notes = ours.object("notes");
    for (std::size_t i = 0; i < updates.items.size(); ++i)
        m.updates[updates.keys[i]] = static_cast<long long>(ours.number(updates.items[i], "updates", most_steps));
    for (std::size_t i = 0; i < notes.items.size(); ++i) m.notes[notes.keys[i]] = ours.words(notes.items[i], "a note");
    for (const Json& group : ours.list("groups").items) {
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
