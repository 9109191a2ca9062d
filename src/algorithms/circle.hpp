// Closed forms of algorithms in which ranks form a circle and messages go a distance of a power of two. For files of
// this folder only.
#pragma once

#include "algorithms/algorithms.hpp"
#include "algorithms/powers.hpp"

namespace tutti {

/// The number of rounds: log2(n), rounded up if n is above 3/4 of the next power of two, else down. A chain goes
/// through all powers below n but the largest, or through the largest, too, as far as it is used.
constexpr int round_the_circle(int n) {
    return std::max(floor_log(n - 1), 1 + ceil_log(n - floor_power(n - 1)));
}

/// The closed form of one phase, or of the two phases of all-reduce. messages(d): how many chunks go the distance d in
/// a phase. The phases go in opposite directions, so both use the same link if two distances add up to n.
template <class Messages>
ClosedForm circle_form(Collective c, int n, Messages messages) {
    const int phases = c == Collective::all_reduce ? 2 : 1;
    ClosedForm form{phases * round_the_circle(n), 0, phases * (n - 1LL)};
    for (int d = 1; d < n; d *= 2) {
        const long long both = messages(d) + (phases == 2 && is_power(n - d) ? messages(n - d) : 0);
        form.busiest_link = std::max(form.busiest_link, both);
    }
    return form;
}

}  // namespace tutti
