// How all pairs of several hosts meet in as few rounds as there can be.
#pragma once

namespace tune {

/// Rounds in which every pair has met once.
constexpr int rounds_of(int hosts) {
    return hosts < 2 ? 0 : hosts - 1 + hosts % 2;
}

/// Whom a host meets in this round; -1: nobody. As at a tournament: one stays where it is, and the others move on by
/// one place around it; of an odd number nobody stays, and one rests.
constexpr int partner_of(int host, int round, int hosts) {
    const int moving = rounds_of(hosts), last = hosts - 1;
    const bool stays = hosts % 2 == 0;
    if (stays && host == last) return (round * ((moving + 1) / 2)) % moving;  // who would meet itself
    const int partner = ((round - host) % moving + moving) % moving;
    if (partner != host) return partner;
    return stays ? last : -1;
}

}  // namespace tune
