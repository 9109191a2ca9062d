// What comes over InfiniBand from a rank that lies: its offers, and frames that it writes to the ring of this rank. The
// adapters are mock ones, which keep to their contract.
#include "fuzz.hpp"
#include "transport/fake_verbs.hpp"
#include "transport/verbs/endpoint.hpp"
#include "transport/verbs/net.hpp"

using namespace tutti;
using harness::fake_verbs;
using net::Header, net::What;

namespace {

constexpr std::size_t guard = 64;

Header header_of(fuzz::Input& in) {
    Header h{};
    if (in.below(16) == 1) {
        in.fill(&h, sizeof h);
        return h;
    }
    h.what = static_cast<What>(in.below(10));
    h.channel = static_cast<std::uint8_t>(in.below(8) == 1 ? in.number<std::uint8_t>() : in.below(2));
    h.in_slot = static_cast<std::uint8_t>(in.below(4) == 1 ? in.below(3) : 0);
    constexpr std::uint32_t lengths[] = {0,    8,          inline_bytes,   inline_bytes + 1,   sizeof(net::Spot),
                                         1000, slot_bytes, slot_bytes + 1, sizeof(net::Board), sizeof(net::WindowKey)};
    h.bytes = lengths[in.below(std::size(lengths))];
    return h;
}

/// Has a place for all that fits.
class Reader : public net::Recipient {
  public:
    Reader(fuzz::Input& in, const Arena& inbox) : in_(in), inbox_(inbox) {}
    std::byte* begin(const Header& h, const char*& why) override {
        TUTTI_ASSERT(h.fits());
        if (in_.below(16) == 1) return why = "refused", nullptr;
        if (h.in_slot == 1) return inbox_.wire(0, h.channel, nullptr).slots + in_.below(slot_depth) * slot_stride;
        return h.what == What::landed ? landing : place_.data() + guard;
    }
    void finish(const Header& h) override { TUTTI_ASSERT(h.fits()); }
    bool is_whole() const {
        const auto untouched = [](std::span<const std::byte> some) {
            return std::ranges::all_of(some, [](std::byte b) { return b == std::byte{0}; });
        };
        return untouched(std::span(place_).first(guard)) && untouched(std::span(place_).last(guard));
    }
    std::byte* landing = nullptr;

  private:
    fuzz::Input& in_;
    const Arena& inbox_;
    std::array<std::byte, inline_bytes + 2 * guard> place_{};
};

/// Both ends of a connection; the other one lies.
class Ends {
  public:
    Ends(fuzz::Input& in, verbs::Net& net, bool one_rail) : in_(in), one_rail_(one_rail), reader_(in, inbox(0)) {
        for (const int r : {0, 1}) {
            const net::LinkMemory memory{mine(r), inbox(r)};
            end_[r] = net.open(r, 1 - r, memory, std::chrono::milliseconds(1000));
        }
        std::vector<std::byte> theirs = end_[1]->offer();
        const std::vector<std::byte> ours = end_[0]->offer();
        std::memcpy(&ours_, ours.data(), sizeof ours_);
        for (std::uint32_t changes = in.below(8); changes > 4; --changes) {
            const std::size_t at = in.number<std::uint16_t>() % theirs.size();
            in.fill(theirs.data() + at, std::min<std::size_t>(theirs.size() - at, 1 + in.below(8)));
        }
        if (in.below(8) == 1) theirs.resize(in.number<std::uint16_t>() % (net::offer_bytes + 1));
        end_[0]->meet(theirs);
        end_[1]->meet(ours);
        reader_.landing = inbox(0).wire(0, 0, nullptr).slots;
    }
    ~Ends() {
        for (const auto& end : end_) end->abandon();
    }
    Ends(const Ends&) = delete;

    void run() {
        for (int actions = 0; actions < 64 && !in_.empty() && end_[0]->trouble().empty(); ++actions) {
            switch (in_.below(4)) {
                case 0:
                case 1:
                    lie();
                    break;
                case 2:
                    send();
                    break;
                default:
                    end_[0]->receive(reader_);
            }
        }
        end_[0]->receive(reader_);
        TUTTI_ASSERT(reader_.is_whole() && !end_[0]->describe().empty());
    }

  private:
    static const Arena& mine(int r) {
        static const std::shared_ptr<Arena> all[] = {Arena::make(2, false), Arena::make(2, false)};
        return *all[r];
    }
    static const Arena& inbox(int r) {
        static const std::shared_ptr<Arena> all[] = {Arena::make(1, false), Arena::make(1, false)};
        return *all[r];
    }
    /// Sends a frame, and has something else lie in the ring before this rank looks.
    void lie() {
        if (!end_[1]->has_room() || !end_[1]->trouble().empty()) return;
        Header h{};
        h.what = What::credit;
        fake_verbs().misplace = in_.below(32) == 1;
        end_[1]->queue(h, nullptr);
        fake_verbs().misplace = false;
        end_[1]->receive(reader_);
        if (!one_rail_) return;
        verbs::Frame frame{};
        frame.header = header_of(in_);
        const std::uint32_t place = in_.below(8);
        frame.place = place == 7 ? in_.number<std::uint64_t>()
                                 : (frame.header.what == What::landed ? reinterpret_cast<std::uint64_t>(reader_.landing)
                                                                      : place * slot_stride);
        in_.fill(frame.body, in_.below(sizeof frame.body + 1));
        std::memcpy(reinterpret_cast<std::byte*>(ours_.ring) + sent_++ % verbs::ring_frames * verbs::ring_stride,
                    &frame, sizeof frame);
    }
    void send() {
        if (!end_[0]->has_room()) return;
        const Wire wire = mine(0).wire(1, 0, nullptr);
        Header h{};
        h.in_slot = in_.flag();
        h.bytes = h.in_slot == 1 ? 1000 : 8;
        if (in_.below(4) != 1) return end_[0]->queue(h, wire.slots);
        h.what = What::landed;
        h.in_slot = 0;
        const net::RemoteMemory to{in_.number<std::uint64_t>(), in_.number<std::uint32_t>(), in_.below(16)};
        end_[0]->put(h, wire.slots, wire.slots, &to);
    }

    fuzz::Input& in_;
    const bool one_rail_;
    Reader reader_;
    std::unique_ptr<net::NetEndpoint> end_[2];
    verbs::Offer ours_{};
    std::uint32_t sent_ = 0;
};

}  // namespace

FUZZ_TARGET(verbs) {
    const bool one_rail = !in.flag();
    fake_verbs() = {};
    static verbs::Net one(harness::fake_library, {"fake0"}), both(harness::fake_library, {});
    verbs::Net& net = one_rail ? one : both;
    TUTTI_ASSERT(net.fabric() != 0);
    Ends(in, net, one_rail).run();
}
