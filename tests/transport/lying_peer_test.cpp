// A peer that does not keep to the protocol, on a network that passes on whatever it says.
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "links.hpp"
#include "mailbox.hpp"

using namespace tutti;
using namespace tutti::net;

namespace {

/// A network by which each rank is told of a window that can't be.
class LyingNet : public harness::MailboxNet {
  public:
    using MailboxNet::MailboxNet;
    std::unique_ptr<NetEndpoint> open(Rank, Rank, const LinkMemory&, std::chrono::milliseconds) override {
        return std::make_unique<Told>(*this);
    }
    std::atomic<int> destroyed_while_receiving = 0;

  private:
    class Told : public NetEndpoint {
      public:
        explicit Told(LyingNet& net) : net_(net) {}
        ~Told() override { net_.destroyed_while_receiving += receiving_; }
        std::vector<std::byte> offer() override { return std::vector<std::byte>(1); }
        void meet(std::span<const std::byte>) override {}
        bool has_room() const override { return true; }
        void queue(const Header&, const std::byte*, bool) override {}
        bool is_empty() const override { return true; }
        bool send() override { return false; }
        bool receive(Recipient& to) override {
            if (std::exchange(has_told_, true)) return false;
            const WindowKey window{1000, 0, 100, most_windows, 7, 7, 0};
            Header h{};
            h.what = What::window, h.channel = one_sided_channel, h.bytes = sizeof window;
            const char* why = "";
            std::memcpy(to.begin(h, why), &window, sizeof window);
            LyingNet& net = net_;
            receiving_ = 1;
            to.finish(h);
            if (net.destroyed_while_receiving == 0) receiving_ = 0;
            return true;
        }
        std::string describe() const override { return "a liar"; }

      private:
        LyingNet& net_;
        bool has_told_ = false;
        int receiving_ = 0;
    };
};

}  // namespace

TEST_CASE("a window that can't be ends the link, once its endpoint has received") {
    LyingNet net(false);
    harness::LinkedPair pair = harness::join(harness::NetUnderTest(net), {}, false);
    std::string said;
    for (const Deadline limit = Clock::now() + std::chrono::minutes(1); said.empty() && Clock::now() < limit;) {
        try {
            for (Neighbourhood& n : pair.at) n.engine->poll();
        } catch (const Error& error) {
            said = error.what();
        }
        REQUIRE(net.destroyed_while_receiving == 0);
    }
    CAPTURE(said);
    CHECK(said.find("it names a window that can't be") != std::string::npos);
}
