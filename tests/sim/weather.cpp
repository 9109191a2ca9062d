#include "weather.hpp"

#include <random>

namespace sim {

std::string Weather::text() const {
    std::string all;
    const auto ranks = [](int a, int b) { return "between ranks " + std::to_string(a) + " and " + std::to_string(b); };
    if (network)
        all +=
            "TCP takes " + std::to_string(latency / 1000) + " to " + std::to_string((latency + jitter) / 1000) + " us";
    if (apart) all += ", each rank on a host of its own";
    if (cut.what == Cut::pulled)
        all += std::string(", the cable is pulled ") + ranks(cut.a, cut.b) + (cut.one_way ? " (one way)" : "") +
               " for " + std::to_string(cut.how_long / ms) + " ms (" + std::to_string(silence_ms) +
               " ms of silence are borne)";
    if (cut.what == Cut::reset) all += ", connections are reset " + ranks(cut.a, cut.b);
    static constexpr const char* things[] = {"", "descriptors", "mappings", "threads", "memory of the heap"};
    if (shortage.what != Shortage::nothing)
        all += std::string(all.empty() ? "" : ", ") + "rank " + std::to_string(shortage.rank) + " gets no " +
               things[shortage.what] + " from number " + std::to_string(shortage.nth) + " on, " +
               std::to_string(shortage.how_many) + " times";
    return all;
}

Weather make_weather(std::uint64_t seed, int ranks, const std::string& transport) {
    std::mt19937_64 random(seed * 2 + 1);
    const auto draw = [&](std::uint64_t below) { return random() % below; };
    const auto any_time = [&](std::uint64_t longest) {  // as many short ones as long ones
        std::uint64_t time = longest;
        for (auto halves = draw(14); halves > 0; --halves) time /= 2;
        return time / 2 + draw(time / 2 + 1);
    };
    Weather w{};
    // A call that is lost is repeated after 1 and 3 s, so not much less is borne.
    static constexpr unsigned silences[] = {4000, 60'000};
    w.silence_ms = silences[draw(2)];
    w.network = transport == "tcp" && draw(2) == 0;
    w.latency = draw(2) == 0 ? 20'000 : any_time(5 * ms);
    w.jitter = any_time(10 * ms);
    const bool stormy = draw(2) == 0;
    w.cut = {draw(4) == 0 ? Cut::reset : Cut::pulled,
             0,
             0,
             draw(4) == 0,
             draw(2) == 0,
             1000 * ms + any_time(400 * ms),
             any_time(8000 * ms)};
    w.cut.a = static_cast<int>(draw(static_cast<std::uint64_t>(ranks)));
    w.cut.b = (w.cut.a + 1 + static_cast<int>(draw(static_cast<std::uint64_t>(ranks - 1)))) % ranks;
    if (draw(3) == 0) w.cut.how_long = 1'000'000 * ms;  // for good
    if (!w.network || !stormy) w.cut.what = Cut::none;
    w.apart = draw(2) == 0 && w.cut.what != Cut::none;
    const bool lacks = draw(8) == 0;
    w.shortage = {static_cast<Shortage::What>(1 + draw(3)), static_cast<int>(draw(static_cast<std::uint64_t>(ranks))),
                  static_cast<unsigned>(draw(60)), draw(2) == 0 ? 1u : static_cast<unsigned>(draw(1000))};
    if (w.shortage.what == Shortage::threads) w.shortage.nth %= 4;
    if (!lacks || w.cut.what != Cut::none) w.shortage.what = Shortage::nothing;
    if (draw(2) == 0 && w.network && w.is_calm()) w.apart = true;  // what is left of several hosts is shrunk
    return w;
}

}  // namespace sim
