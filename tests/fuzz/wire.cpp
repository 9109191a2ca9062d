// What comes over a network from a rank that lies: bytes of a data socket, and frames of a better network's endpoint,
// while this rank sends and receives as always.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.hpp"
#include "kernels/host/executor.hpp"
#include "transport/links.hpp"
#include "transport/net/link.hpp"
#include "transport/net/net.hpp"

using namespace tutti;
using namespace tutti::net;

namespace {

constexpr std::size_t own_bytes = 4096, guard = 256;
constexpr std::uint32_t gate = 1, key = 5;  // of the rank's part of a window

Header header_of(fuzz::Input& in) {
    Header h{};
    if (in.below(16) == 1) {
        in.fill(&h, sizeof h);
        return h;
    }
    h.what = static_cast<What>(in.below(11));
    h.channel = static_cast<std::uint8_t>(in.below(8) == 1   ? in.number<std::uint8_t>()
                                          : in.below(8) == 1 ? one_sided_channel
                                                             : in.below(2));
    h.in_slot = in.below(4) == 1;
    h.awaited = in.below(4) == 1;
    constexpr std::uint32_t lengths[] = {0,
                                         sizeof(Refusal),
                                         inline_bytes,
                                         inline_bytes + 1,
                                         1000,
                                         sizeof(Spot),
                                         sizeof(Board),
                                         sizeof(Received),
                                         offsetof(net::Offer, bytes),
                                         sizeof(net::Offer),
                                         slot_bytes,
                                         slot_bytes + 1};
    h.bytes = lengths[in.below(std::size(lengths))];
    h.signature = in.below(4);
    h.credit = in.below(8) == 1 ? in.number<std::uint32_t>() : in.below(4);
    if (in.below(4) == 1) in.fill(&h.call, sizeof h.call);
    return h;
}

/// An endpoint of what the input says.
class FuzzedEndpoint : public NetEndpoint {
  public:
    explicit FuzzedEndpoint(fuzz::Input& in) : in_(in) {}
    std::vector<std::byte> offer() override { return std::vector<std::byte>(8); }
    void meet(std::span<const std::byte>) override {}
    bool has_room() const override { return true; }
    void queue(const Header& h, const std::byte* body, bool) override { look_at(h, body); }
    void put(const Header& h, const std::byte* body, const std::byte*, const net::RemoteMemory*) override {
        look_at(h, body);
    }
    bool is_empty() const override { return true; }
    bool send() override { return false; }
    bool knows(const std::byte*, std::size_t) override { return true; }
    net::RemoteMemory expose(int, std::byte* memory, std::size_t bytes) override {
        return {reinterpret_cast<std::uint64_t>(memory), static_cast<std::uint32_t>(bytes), 5};
    }
    bool receive(Recipient& to) override {
        if (in_.empty() || in_.flag()) return false;
        const Header h = header_of(in_);
        const char* why = "it does not fit";
        std::byte* const place = h.fits() ? to.begin(h, why) : nullptr;
        if (place == nullptr) return lose(why);
        std::memset(place, 7, h.bytes);
        to.finish(h);
        return true;
    }
    std::string describe() const override { return "fuzz"; }

  private:
    void look_at(const Header& h, const std::byte* body) {
        TUTTI_ASSERT(h.fits());
        for (std::uint32_t i = 0; i < h.bytes; i += 512) sum_ += std::to_integer<unsigned>(body[i]);
    }
    fuzz::Input& in_;
    unsigned sum_ = 0;
};

class FuzzedNet : public Net {
  public:
    explicit FuzzedNet(fuzz::Input& in) : in_(in) {}
    std::string_view name() const override { return "fuzz"; }
    std::uint64_t fabric() override { return 1; }
    std::string absence() override { return ""; }
    Line cost() const override { return {1, 0}; }
    std::unique_ptr<NetEndpoint> open(Rank, Rank, const LinkMemory&, std::chrono::milliseconds) override {
        return std::make_unique<FuzzedEndpoint>(in_);
    }

  private:
    fuzz::Input& in_;
};

/// One channel of this rank, and the peer's end of the socket.
class Rank0 {
  public:
    Rank0(fuzz::Input& in, const Session& session, const std::shared_ptr<Arena>& arena, Net* net)
        : in_(in), arena_(*arena), ends_(session, arena, 1), sender_(ends_.outlet(0)), receiver_(ends_.inlet(0)) {
        arena_.lent().lend(gate, key, std::span(own_).subspan(guard, own_bytes));
        ends_.use(net);
        ends_.set_limit(silence_limit);
        attach(0);
        if (net == nullptr || in.below(8) == 1) return;
        ends_.introduce(silence_limit, {});
        net::Offer offer{};
        net->name().copy(offer.net, sizeof offer.net - 1);
        Header h{};
        h.what = What::offer;
        h.bytes = offsetof(net::Offer, bytes) + 8;
        say(h, &offer, h.bytes);
        h.what = What::met;
        h.bytes = 0;
        say(h, nullptr, 0);
        move();
    }

    ~Rank0() {
        arena_.lent().take_all_back();
        arena_.awaited().forget_all();
    }

    void run() {
        for (int actions = 0; actions < 128 && !in_.empty() && !ends_.is_lost(); ++actions) {
            switch (in_.below(9)) {
                case 0:
                case 1:
                    say_something();
                    break;
                case 2:
                    send();
                    break;
                case 3:
                    receive();
                    break;
                case 4:
                    receiver_.post(in_.below(4), {0, reinterpret_cast<std::uint64_t>(own_.data() + guard)},
                                   in_.flag() ? 1000 : own_bytes);
                    break;
                case 5:
                    ends_.settle();
                    ends_.push();
                    break;
                case 6:
                    reset();
                    break;
                default:
                    move();
            }
        }
        move();
        for (const SharedCall& call : ends_.page().board) TUTTI_ASSERT(!call_text(call.get()).empty());
        TUTTI_ASSERT(!call_text(receiver_.call()).empty() && !ends_.describe().empty());
        TUTTI_ASSERT(!ends_.is_lost() || ends_.what_is_lost().empty() || !ends_.what_is_lost().empty());
        const auto untouched = [](std::span<const std::byte> some) {
            return std::ranges::all_of(some, [](std::byte b) { return b == std::byte{0}; });
        };
        TUTTI_ASSERT(untouched(std::span(own_).first(guard)) && untouched(std::span(own_).last(guard)));
    }

  private:
    static constexpr std::chrono::milliseconds silence_limit{5000};

    /// A socket of that round.
    void attach(std::uint32_t round) {
        int ends[2];
        TUTTI_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        peer_ = Fd(ends[1]);
        ends_.attach(0, 1,
                     std::make_unique<tcp::Stream>(bootstrap::Detached{Fd(ends[0]), {}, {}, {}}, tcp::Cipher::none,
                                                   silence_limit),
                     round);
    }
    /// The socket ends, and another one takes its place, or does not.
    void reset() {
        peer_.reset();
        move();
        const std::uint32_t round = ends_.healing().round();
        if (in_.below(4) != 1 && ends_.wants(0, 1, round)) attach(round);
    }
    void say(const Header& h, const void* body, std::size_t bytes) {
        static std::vector<std::byte> frame(sizeof h + slot_bytes);
        std::memcpy(frame.data(), &h, sizeof h);
        if (body != nullptr) std::memcpy(frame.data() + sizeof h, body, bytes);
        static_cast<void>(::send(peer_.get(), frame.data(), sizeof h + bytes, MSG_NOSIGNAL | MSG_DONTWAIT));
    }
    /// The number of the next message of a channel.
    std::uint32_t next_of(int channel) {
        const Fifo& in = *ends_.inlet(channel).fifo;
        std::uint32_t number = in.released.load();
        while (in.cells[number % fifo_depth].turn.load() == number + 1) ++number;
        return number;
    }
    /// A put, a request or an answer that is nearly right.
    void make_one_sided(Header& h, std::span<std::byte> body) {
        h.channel = static_cast<std::uint8_t>(one_sided_channel + in_.below(2));
        h.signature = next_of(h.channel) + (in_.below(4) == 1 ? in_.below(20) - 2 : 0);
        if (h.channel == answer_channel) {
            if (in_.flag() && arena_.awaited().state(1).asked < 3)
                arena_.awaited().expect(1, std::span(own_).subspan(guard, in_.below(own_bytes + 1)));
            return;
        }
        PutHeader put{};
        put.offset = in_.below(own_bytes + 64);
        put.gate = gate;
        put.key = in_.below(4) != 0 ? key : 0;
        put.signal = static_cast<std::uint8_t>(in_.below(9));
        put.raises = static_cast<std::uint8_t>(in_.below(3));
        put.asks = static_cast<std::uint8_t>(in_.below(3));
        if (put.asks == 1 && in_.below(8) != 1) put.signal = put.raises = 0;
        const std::uint64_t wanted = in_.below(8) == 1 ? in_.number<std::uint64_t>() : in_.below(own_bytes);
        const std::size_t before = h.in_slot == 1 ? put_header_in_slot : sizeof put;
        put.written = in_.below(8) == 1;  // no adapter has
        std::memcpy(body.data(), &put, sizeof put);
        std::memcpy(body.data() + before, &wanted, sizeof wanted);
        if (in_.below(8) != 1) h.bytes = static_cast<std::uint32_t>(before + sizeof wanted);
    }
    void say_something() {
        Header h = header_of(in_);
        static std::vector<std::byte> body(slot_bytes);
        const std::size_t bytes = std::min<std::size_t>(h.bytes, in_.below(8) == 1 ? slot_bytes : 2048);
        in_.fill(body.data(), std::min<std::size_t>(bytes, in_.below(4) == 1 ? 64 : 0));
        if (h.what == What::message && h.channel == one_sided_channel) {
            make_one_sided(h, body);
            return say(h, body.data(), std::min<std::size_t>(h.bytes, slot_bytes));
        }
        say(h, body.data(), in_.below(16) == 1 ? bytes / 2 : bytes);
    }
    void move() {
        ends_.heard(0, EPOLLIN | EPOLLOUT);
        ends_.move();
        static char drain[1 << 16];
        while (read(peer_.get(), drain, sizeof drain) > 0) {
        }
    }
    void send() {
        const bool slot = in_.flag();
        if (!sender_.ready(slot)) return;
        sender_.commit(slot ? Kind::slot : Kind::inlined, slot ? 1000 : 8, 3);
    }
    void receive() {
        if (!receiver_.ready()) return;
        const Cell& cell = receiver_.cell();
        const std::size_t room = cell.kind == Kind::slot ? slot_stride : inline_bytes;
        TUTTI_ASSERT(cell.kind == Kind::landed || cell.bytes <= room);
        receiver_.release();
    }

    fuzz::Input& in_;
    Arena& arena_;
    Ends ends_;
    Fd peer_;
    Sender sender_;
    Receiver receiver_;
    std::vector<std::byte> own_ = std::vector<std::byte>(own_bytes + 2 * guard);
};

}  // namespace

FUZZ_TARGET(wire) {
    static const harness::MapSession session(0, std::make_shared<harness::MapSession::Offers>());
    static const std::shared_ptr<Arena> arena = Arena::make(2, false);
    std::memset(arena->memory().data(), 0, ArenaLayout{2}.slots_begin());
    FuzzedNet net(in);
    Rank0(in, session, arena, in.flag() ? &net : nullptr).run();
}
