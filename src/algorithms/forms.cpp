#include "algorithms/forms.hpp"

#include "algorithms/powers.hpp"

namespace tutti {
namespace {

constexpr ClosedForm nothing{0, 0, 0};  // one rank

/// Rounds: through all powers of two but the largest, or through that one, too, as far as it is used: the logarithm of
/// n, rounded up where n is above 3/4 of the next power.
int round_the_circle(int n) {
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

/// Rounds: to the opposite corner, or from a remainder rank there, or from one to another, whose partner may be nearer.
int once_through_the_cube(int n) {
    const int remainder = n - floor_power(n);
    return remainder == 0 ? floor_log(n) : std::max(1 + floor_log(n), 2 + ceil_log(remainder));
}

}  // namespace

ClosedForm ring_form(Collective c, int n) {
    if (n == 1) return nothing;
    if (c == Collective::all_reduce) return {2 * (n - 1), 2LL * (n - 1), 2LL * (n - 1)};
    if (has_root(c)) return {n - 1, 1, 1};
    return {n - 1, n - 1, n - 1};
}

ClosedForm direct_form(Collective c, int n) {
    if (n == 1) return nothing;
    if (c == Collective::all_reduce) return {2, 2, 2LL * (n - 1)};
    if (c == Collective::broadcast) return {n == 2 ? 1 : 2, 2, 2LL * (n - 1)};
    if (c == Collective::reduce) return {n == 2 ? 1 : 2, 2, n};
    return {1, 1, n - 1};
}

ClosedForm flat_form(Collective c, int n) {
    if (n == 1) return nothing;
    return {1, 1, c == Collective::reduce || c == Collective::gather ? 1 : n - 1};
}

ClosedForm pair_form(Collective, int) {
    return {1, 1, 1};
}

ClosedForm binomial_form(Collective c, int n) {
    if (n == 1) return nothing;
    if (c == Collective::broadcast) return {floor_log(n), 1, ceil_log(n)};
    if (c == Collective::reduce) return {floor_log(n), 1, 1};
    return {floor_log(n), largest_subtree(n), c == Collective::scatter ? n - 1 : largest_subtree(n)};
}

// An inner rank with two children is there from 4 ranks on.
ClosedForm tree_form(Collective c, int n) {
    if (n == 1) return nothing;
    const int depth = ceil_log(n);
    if (c == Collective::reduce) return {depth, 1, 1};
    if (c == Collective::broadcast) return {depth, 1, n >= 4 ? 2 : 1};
    return {2 * depth, 1, std::min(n - 1, 3)};
}

// A rank sends up in both trees, and down to two children in one of them.
ClosedForm double_tree_form(Collective c, int n) {
    if (n == 1) return nothing;
    const int depth = ceil_log(n);
    if (c == Collective::all_reduce) return {2 * depth, 2, n == 2 ? 2 : n == 3 ? 3 : 4};
    return {depth, n == 2 ? 2 : 1, 2};
}

ClosedForm halving_doubling_form(Collective c, int n) {
    if (n == 1) return nothing;
    const int size = floor_power(n), remainder = n - size;
    if (c == Collective::all_reduce)  // the remainder's rounds are before and after both phases
        return {2 * floor_log(n) + (remainder > 0 ? 2 : 0), size, 2LL * (size - 1) + (remainder > 0 ? size : 0)};
    const int rounds = once_through_the_cube(n);
    const int link = remainder > 0 ? n - 1 : n / 2;
    if (c == Collective::reduce_scatter) return {rounds, link, n - 1};
    long long rank = size - 1 + (remainder > 0 ? n - 1 : 0);
    for (int d = 1; d < size; d *= 2)
        rank += std::min(d, remainder);  // what the first partner has of the remainder in each round
    return {rounds, link, rank};
}

ClosedForm doubling_form(Collective c, int n) {
    if (n == 1) return nothing;
    if (c == Collective::all_gather) return halving_doubling_form(c, n);
    return {once_through_the_cube(n), 1, floor_log(n) + (is_power(n) ? 0 : 1)};
}

ClosedForm bruck_form(Collective c, int n) {
    if (n == 1) return nothing;
    if (c != Collective::all_to_all) return circle_form(c, n, [n](int d) { return std::min(d, n - d); });
    ClosedForm form{round_the_circle(n), 0, 0};
    for (int d = 1; d < n; d *= 2) {
        form.busiest_link = std::max<long long>(form.busiest_link, with_bit(n, d));
        form.busiest_rank += with_bit(n, d);
    }
    return form;
}

ClosedForm pat_form(Collective c, int n) {
    if (n == 1) return nothing;
    return circle_form(c, n, [n](int d) { return (n - d + 2 * d - 1) / (2 * d); });
}

ClosedForm dissemination_form(Collective, int n) {
    if (n == 1) return nothing;
    return {ceil_log(n), 1, ceil_log(n)};
}

ClosedForm server_form(Collective, int n) {
    if (n == 1) return nothing;
    return {2, 1, n - 1};
}

ClosedForm server2_form(Collective, int n) {
    if (n == 1) return nothing;
    return {2, 2, n};
}

}  // namespace tutti
