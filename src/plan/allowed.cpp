#include "plan/allowed.hpp"

#include <algorithm>

#include "base/result.hpp"
#include "plan/multicast.hpp"

namespace tutti {
namespace {

std::string_view trimmed(std::string_view text) {
    const auto blank = [](char c) { return c == ' ' || c == '\t'; };
    while (!text.empty() && blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && blank(text.back())) text.remove_suffix(1);
    return text;
}

std::vector<std::string_view> split(std::string_view text, char at) {
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t end = text.find(at);
        parts.push_back(trimmed(text.substr(0, end)));
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end + 1);
    }
}

/// Whether the algorithm, or a composition that it stands for, can do the collective.
bool is_capable(const Algorithm& a, Collective c) {
    const auto its = [&](const Algorithm& composed) { return composed.family == a.name && composed.supports(c); };
    return a.supports(c) || std::ranges::any_of(compositions(), its);
}

std::string names_for(const Collective* only, const UserAlgorithms* own) {
    if (only == nullptr && own != nullptr) return own->all_names();
    std::string names;
    for (const Algorithm& a : algorithms())
        if (only == nullptr || is_capable(a, *only)) names.append(names.empty() ? "" : ", ").append(a.name);
    return names;
}

Collective collective_named(std::string_view name) {
    std::string known;
    for (int c = 0; c < collectives; ++c) {
        const auto collective = static_cast<Collective>(c);
        if (name == name_of(collective)) return collective;
        known += (c > 0 ? ", " : "") + std::string(name_of(collective));
    }
    fail(tuttiInvalidUsage, "there is no collective '%s' to choose algorithms for; there are: %s",
         std::string(name).c_str(), known.c_str());
}

}  // namespace

bool Allowed::List::has(std::string_view name) const {
    return std::ranges::find(names, name) != names.end();
}

Allowed::List Allowed::parse_list(std::string_view text, const Collective* only, const UserAlgorithms* own) {
    List list;
    list.given = !text.empty();
    list.excludes = list.given && text.front() == '^';
    if (list.excludes) text.remove_prefix(1);
    if (!list.given) return list;
    for (const std::string_view part : split(text, ',')) {
        const std::string name(part);
        if (name == nvls) {
            if (only != nullptr && !has_multicast(*only))
                fail(tuttiInvalidUsage, "algorithm 'nvls' is not capable of %s; these are: %s",
                     std::string(name_of(*only)).c_str(), names_for(only, own).c_str());
            list.names.push_back(name);
            continue;
        }
        const Algorithm* a = find_algorithm(name);
        if (a == nullptr && (own == nullptr || !own->knows(name)))
            fail(tuttiInvalidUsage, "there is no algorithm '%s'; there are: %s%s", name.c_str(),
                 names_for(only, own).c_str(),
                 name.find('+') == name.npos ? "" : ", and hierarchies of two of these, as direct+ring");
        if (only != nullptr && a != nullptr && !is_capable(*a, *only))
            fail(tuttiInvalidUsage, "algorithm '%s' is not capable of %s; these are: %s", name.c_str(),
                 std::string(name_of(*only)).c_str(), names_for(only, own).c_str());
        list.names.push_back(name);
    }
    return list;
}

Allowed Allowed::parse(std::string_view text, const UserAlgorithms* own) {
    Allowed allowed;
    allowed.text_ = text;
    for (const std::string_view part : split(text, ';')) {
        if (part.empty()) continue;
        const std::size_t colon = part.find(':');
        const std::string_view what = colon == std::string_view::npos ? "" : trimmed(part.substr(0, colon));
        const std::string_view list = colon == std::string_view::npos ? part : trimmed(part.substr(colon + 1));
        if (what.empty() || what == "*") {
            allowed.lists_.fill(parse_list(list, nullptr, own));
        } else {
            const Collective collective = collective_named(what);
            allowed.lists_[static_cast<std::size_t>(collective)] = parse_list(list, &collective, own);
        }
    }
    return allowed;
}

bool Allowed::allows(Collective collective, const Algorithm& algorithm) const {
    const List& list = lists_[static_cast<std::size_t>(collective)];
    return !list.given || (list.has(algorithm.name) || list.has(algorithm.family)) != list.excludes;
}

bool Allowed::names(Collective collective, std::string_view algorithm) const {
    const List& list = lists_[static_cast<std::size_t>(collective)];
    return !list.excludes && list.has(algorithm);
}

}  // namespace tutti
