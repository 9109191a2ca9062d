#include "comm/components.hpp"

#include <deque>
#include <numeric>
#include <unordered_map>

namespace tutti {

std::vector<Component> components_of(std::span<const Component::Key> calls) {
    std::vector<std::size_t> root(calls.size());
    std::iota(root.begin(), root.end(), std::size_t{0});
    const auto find = [&](std::size_t i) {
        while (root[i] != i) i = root[i] = root[root[i]];
        return i;
    };
    std::unordered_map<const void*, std::size_t> of_comm, of_stream;  // the first call of each
    for (std::size_t i = 0; i < calls.size(); ++i)
        for (const std::size_t k : {of_comm.try_emplace(calls[i].comm, i).first->second,
                                    of_stream.try_emplace(calls[i].stream, i).first->second})
            root[find(i)] = find(k);
    std::vector<Component> components;
    std::unordered_map<std::size_t, std::size_t> number;  // by root
    for (std::size_t i = 0; i < calls.size(); ++i) {
        const auto [known, unknown] = number.try_emplace(find(i), components.size());
        if (unknown) components.emplace_back();
        components[known->second].members.push_back(i);
    }
    return components;
}

std::vector<std::size_t> meetings_of(std::span<const CallToSelf> calls) {
    using Kind = CallToSelf::Kind;
    struct Waiting {
        Kind kind = Kind::none;
        std::deque<std::size_t> calls;  // all of this kind
    };
    std::unordered_map<const void*, Waiting> of_comm;
    std::vector<std::size_t> meets(calls.size(), unmet);
    for (std::size_t i = 0; i < calls.size(); ++i) {
        if (calls[i].kind == Kind::none) continue;
        Waiting& waiting = of_comm[calls[i].comm];
        if (waiting.calls.empty() || waiting.kind == calls[i].kind) {
            waiting.kind = calls[i].kind;
            waiting.calls.push_back(i);
            continue;
        }
        meets[i] = waiting.calls.front();
        meets[meets[i]] = i;
        waiting.calls.pop_front();
    }
    return meets;
}

}  // namespace tutti
