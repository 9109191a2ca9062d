// Closed forms of algorithms that go round a circle by powers of two. Shared by the files of this folder only.
#pragma once

#include "algorithms/algorithms.hpp"
#include "algorithms/powers.hpp"

namespace tutti {

/// Rounds: through all powers of two but the largest, or through that one, too, as far as it is used: the logarithm of
/// n, rounded up where n is above 3/4 of the next power.
constexpr int round_the_circle(int n) {
    return std::max(floor_log(n - 1), 1 + ceil_log(n - floor_power(n - 1)));
}

/// Two phases round a circle by powers of two: messages(d) is how many chunks go the distance d in each of them,
/// forwards in one and backwards in the other, which meet on a link if two distances add up to n.
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
