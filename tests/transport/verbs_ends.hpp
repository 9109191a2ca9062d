// Both ends of a connection between mock adapters, without links around them.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "fake_verbs.hpp"
#include "harness/catch.hpp"
#include "messages.hpp"
#include "transport/verbs/net.hpp"

namespace tutti::harness {

/// Takes messages into an inbox, as a link does.
class Reader : public net::Recipient {
  public:
    explicit Reader(const Arena& inbox) : inbox_(inbox) {}
    std::byte* begin(const net::Header& h, const char*& why) override {
        if (refuses) return why = "refused", nullptr;
        const Wire wire = inbox_.wire(0, h.channel, nullptr);
        const std::uint32_t number = next_[h.channel];
        return place = h.in_slot == 1 ? wire.slots + number % slot_depth * slot_stride
                                      : wire.fifo->cells[number % fifo_depth].payload;
    }
    void finish(const net::Header& h) override {
        if (h.what == net::What::message) ++next_[h.channel];
        seen.push_back(h);
    }
    std::vector<net::Header> seen;
    std::byte* place = nullptr;
    bool refuses = false;

  private:
    const Arena& inbox_;
    std::array<std::uint32_t, channels_per_link> next_{};
};

/// Both ends of a connection between adapters of this process.
struct Ends {
    std::shared_ptr<Arena> mine[2], inbox[2];
    std::unique_ptr<net::NetEndpoint> end[2];
    std::unique_ptr<Reader> reader[2];

    explicit Ends(verbs::Net& net, bool meet = true) : Ends({&net, &net}, meet) {}
    /// broken: ports that rank 0 does not try again. here: where the ranks are.
    Ends(std::array<verbs::Net*, 2> nets, bool meet, std::uint64_t broken = 0, std::array<Whereabouts, 2> here = {}) {
        for (const int r : {0, 1}) {
            mine[r] = Arena::make(2, false);
            inbox[r] = Arena::make(1, false);
            reader[r] = std::make_unique<Reader>(*inbox[r]);
            const std::chrono::milliseconds silence_limit(1000);
            const net::LinkMemory memory{*mine[r], *inbox[r], nullptr, &here[static_cast<std::size_t>(r)]};
            end[r] = r == 0 && broken != 0 ? nets[0]->detour(0, 1, memory, silence_limit, broken)
                                           : nets[static_cast<std::size_t>(r)]->open(r, 1 - r, memory, silence_limit);
        }
        if (!meet) return;
        end[0]->meet(end[1]->offer());
        end[1]->meet(end[0]->offer());
    }
    void move() {
        for (const int r : {0, 1}) end[r]->receive(*reader[r]);
    }
};

template <class Body>
std::string error_of(Body&& body) {
    try {
        body();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace tutti::harness
