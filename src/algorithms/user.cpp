#include "algorithms/user.hpp"

#include <algorithm>

#include "algorithms/prove.hpp"
#include "base/json_tree.hpp"
#include "base/result.hpp"

namespace tutti {
namespace {

/// FNV-1a. Detects mistakes; against malicious programs there is the verifier.
std::uint64_t mix(std::uint64_t hash, std::string_view words) {
    if (hash == 0) hash = 0xcbf29ce484222325u;
    for (const char c : words) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return (hash ^ words.size()) * 0x100000001b3u | 1;
}

Algorithm row_of(const ProgramFile& file, const ProgramSet& set, const Report& report) {
    const ClosedForm form{report.rounds, report.busiest_link, report.busiest_rank};
    const bool ordered =
        reduces(set.collective) && (set.ranks == 1 || other_than_rank_order(set.ranks, report).empty());
    return {.name = file.name,
            .summary = file.summary,
            .ways = {{set.collective,
                      [&set](const Request& q) { return set.programs[static_cast<std::size_t>(q.rank)]; },
                      {.in_rank_order = ordered, .uneven_safe = report.uneven_safe}}},
            .form = [form](Collective, int) { return form; },
            .fifo_depth = report.fifo_depth,
            .pull_safe = report.pull_safe,
            .push_safe = report.push_safe};
}

}  // namespace

const ProgramFile& UserAlgorithms::add(std::string_view json, const std::string& path) {
    const ProgramFile& file = files_.emplace_back(programs_from(json, path));
    if (find_algorithm(file.name) != nullptr)
        fail_at(path, file.name_line, "'name': Tutti has an algorithm '" + file.name + "' itself; choose another name");
    for (const ProgramSet& set : file.sets) {
        if (set.ranks != ranks_) continue;
        if (find(file.name, set.collective, set.root) != nullptr)
            fail_at(path, set.line,
                    text("another file has %s of '%s' for %d ranks, too", name_of(set.collective).data(),
                         file.name.c_str(), ranks_));
        rows_.push_back({row_of(file, set, proven(file, set, slots_)), set.collective, set.root});
    }
    hash_ = mix(hash_, json);
    return file;
}

std::vector<const Algorithm*> UserAlgorithms::candidates(Collective collective, Rank root) const {
    std::vector<const Algorithm*> all;
    for (const Row& row : rows_)
        if (row.collective == collective && (!has_root(collective) || row.root == root)) all.push_back(&row.algorithm);
    return all;
}

const Algorithm* UserAlgorithms::find(std::string_view name, Collective collective, Rank root) const {
    for (const Algorithm* a : candidates(collective, root))
        if (a->name == name) return a;
    return nullptr;
}

bool UserAlgorithms::knows(std::string_view name) const {
    return std::ranges::any_of(files_, [&](const ProgramFile& file) { return file.name == name; });
}

std::string UserAlgorithms::all_names() const {
    std::string names;
    for (const Algorithm& a : algorithms()) names.append(names.empty() ? "" : ", ").append(a.name);
    for (const ProgramFile& file : files_) names.append(", ").append(file.name);
    return names;
}

}  // namespace tutti
