#include "algorithms/algorithms.hpp"

#include <vector>

#include "base/result.hpp"

namespace tutti {

const Way* Algorithm::way(Collective c) const {
    for (const Way& way : ways)
        if (way.collective == c) return &way;
    return nullptr;
}

Program Algorithm::make(const Request& request) const {
    const Way* const its = way(request.collective);
    if (its == nullptr)
        fail(tuttiInternalError, "%s was asked for %s, which it does not support", std::string(name).c_str(),
             name_of(request.collective).data());
    if (request.ranks > 1) return its->make(request);
    Program p = program_for(request);
    p.step({input(0)}, {output(0)},
           reduces(request.collective));  // so that avg and pre-multiplied sum scale here, too
    return p;
}

std::span<const Algorithm> algorithms() {
    static const auto& table = *new const std::vector<Algorithm>{
        ring(),     direct(), flat(), pair(),          binomial(), tree(),   double_tree(), halving_doubling(),
        doubling(), bruck(),  pat(),  dissemination(), chain(),    server(), server2(),     hierarchy()};
    return table;
}

const Algorithm* find_algorithm(std::string_view name) {
    for (const Algorithm& a : algorithms())
        if (a.name == name) return &a;
    if (name.find('+') == name.npos) return nullptr;
    for (const Algorithm& a : compositions())
        if (a.name == name) return &a;
    return nullptr;
}

}  // namespace tutti
