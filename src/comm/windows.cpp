// Windows, puts, gets and signals. A signal is a counter in the arena of the rank that waits for it, one for each peer
// and number. So a waiting rank looks at its own memory, and signals stay when the rank that raised them is gone.
#include "comm/windows.hpp"

#include <algorithm>
#include <cstring>

#include "base/caught.hpp"
#include "base/peer_error.hpp"
#include "comm/window_parts.hpp"
#include "transport/net/direct_puts.hpp"

namespace tutti {
namespace {

/// How much a put or a get copies at a time. A peer that gives up, or closes its part, waits for one such piece at
/// most.
constexpr std::size_t piece_bytes = std::size_t{1} << 20;

/// Shorter puts are copied to slots also from memory that adapters know: that takes less time than until the peer's
/// engine has acknowledged them, which may be on a thread that has to be woken.
constexpr std::size_t least_reference = std::size_t{1} << 20;

/// How long to wait for the peers of a failed communicator to let go of memory.
constexpr std::chrono::seconds brief{10};

bool is_open(const RankPage& page, const WindowPart& part) {
    return page.gates[part.gate].load(std::memory_order_relaxed) == part.key;
}

/// For error texts.
const char* does(const OneSided& o) {
    return o.kind == OneSided::Kind::get ? "gets from" : "puts to";
}

}  // namespace

std::string Windows::find_obstacle() const {
    for (Rank a = 0; a < ranks(); ++a)
        for (Rank b = a + 1; b < ranks(); ++b) {
            if (connections_.on_gpus()) {
                const char* const obstacle = connections_.places().obstacle(a, b);
                if (obstacle == nullptr) continue;
                return text("%s and %s are not both on GPUs that p2p joins (%s): ranks can't write to each other",
                            connections_.session().name(a).c_str(), connections_.session().name(b).c_str(), obstacle);
            }
            const Transport& t = connections_.transport_between(a, b);
            if (t.sees() != Sees::nothing || t.needs_engine()) continue;
            return text("%s and %s are joined by %s, by which ranks can't write to each other",
                        connections_.session().name(a).c_str(), connections_.session().name(b).c_str(),
                        std::string(t.name()).c_str());
        }
    return "";
}

const std::string& Windows::obstacle() {
    std::call_once(looked_for_obstacle_, [this] { obstacle_ = find_obstacle(); });
    return obstacle_;
}

/// Opens a gate for this rank's part: peers that know its key may use the part from now on.
WindowPart Windows::open_part(std::size_t bytes) {
    RankPage& page = connections_.page();
    for (std::uint32_t gate = 0; gate < most_windows; ++gate) {
        if (page.gates[gate].load(std::memory_order_relaxed) != 0) continue;
        if (++last_key_ == 0) ++last_key_;
        if (gpu_ != nullptr) gpu_->boards().open(gate, last_key_);
        page.gates[gate].store(last_key_, std::memory_order_release);
        return {{0, 0}, bytes, gate, last_key_};
    }
    fail(tuttiInvalidUsage, "rank %d has %zu windows already, as many as there may be: deregister some", rank(),
         most_windows);
}

/// Sends entry r of `mine` to rank r; returns, by rank, what the others sent to this one.
std::vector<Windows::Told> Windows::exchanged(const std::vector<Told>& mine) {
    std::vector<Told> all(mine);
    Operation exchange;
    exchange.collective = Collective::all_to_all;
    exchange.type = DataType::uint8;
    exchange.count = sizeof(Told);
    exchange.input = mine.data();
    exchange.output = all.data();
    run_(exchange);
    return all;
}

/// The same. Throws if one of the ranks has trouble.
std::vector<Windows::Told> Windows::exchange(const std::vector<Told>& mine) {
    std::vector<Told> all = exchanged(mine);
    for (const Told& told : all) {
        if (told.trouble[0] != 0)
            fail(told.lacks == 1 ? tuttiSystemError : tuttiInvalidArgument, "%.*s",
                 static_cast<int>(sizeof told.trouble), told.trouble);
        if (told.part.gate >= most_windows)
            fail_by(static_cast<Rank>(&told - all.data()), tuttiRemoteError,
                    "rank %d: rank %td tells of gate %u for a window, and a rank has %zu", rank(), &told - all.data(),
                    told.part.gate, most_windows);
    }
    return all;
}

/// What to tell the other ranks, by rank. why: the reason if this rank has no part.
std::vector<Windows::Told> Windows::tell_of(Window& window, void* buffer, std::size_t bytes, bool symmetric,
                                            std::optional<Error> why, std::optional<gpu::Offer>& offer) {
    const WindowPart part = window.parts[static_cast<std::size_t>(rank())];
    std::vector<Told> mine(static_cast<std::size_t>(ranks()));
    Told same{};
    try {
        if (gpu_ != nullptr && !why) same = exposed(window, buffer, bytes, offer);
    } catch (...) {
        why = caught();
    }
    for (Rank r = 0; r < ranks(); ++r) {
        Told& told = mine[static_cast<std::size_t>(r)];
        told = same;
        told.part = part;
        told.part.where = {0, reinterpret_cast<std::uint64_t>(buffer)};
        told.symmetric = symmetric;
        // A peer may put or get while this rank does nothing more, and links are made by both ranks.
        if (!why && reaches_by_network(r)) connections_.linked(r);
        if (gpu_ == nullptr && !why && r != rank() && !reaches_by_network(r) &&
            !connections_.linked(r).link->refer(buffer, bytes, told.part.where) && bytes > 0)
            why = Error(tuttiInvalidArgument, text("rank %d: the %zu bytes at %p are not memory that other processes "
                                                   "can map as a whole: take memory of "
                                                   "tuttiMemAlloc, or whole pages",
                                                   rank(), bytes, buffer));
    }
    for (Told& told : mine) {
        if (!why) continue;
        told.lacks = why->code() == tuttiSystemError;
        std::strncpy(told.trouble, why->what(), sizeof told.trouble - 1);
    }
    return mine;
}

std::shared_ptr<const Window> Windows::open(void* buffer, std::size_t bytes, bool symmetric,
                                            std::optional<Error> trouble) {
    std::shared_ptr<Window> window;
    std::vector<Told> mine;
    std::optional<gpu::Offer> offer;
    try {
        window = std::make_shared<Window>();
        window->parts.resize(static_cast<std::size_t>(ranks()));
        window->number = ++last_number_;
        WindowPart& part = window->parts[static_cast<std::size_t>(rank())];
        part.bytes = bytes;
        try {
            if (!trouble) part = open_part(bytes);
            if (!trouble && gpu_ == nullptr && connections_.engine() != nullptr)
                connections_.engine()->lend(part.gate, part.key, {static_cast<std::byte*>(buffer), bytes});
        } catch (...) {
            trouble = caught();
        }
        mine = tell_of(*window, buffer, bytes, symmetric, std::move(trouble), offer);
    } catch (...) {  // the other ranks wait to be told
        with_caught([&](const Error& error) { faults_.fail(error); });
        if (window && !window->parts.empty()) close(*window);
        throw;
    }
    try {
        const std::vector<Told> all = exchange(mine);
        for (std::size_t r = 0; r < all.size(); ++r) window->parts[r] = all[r].part;
        if (gpu_ != nullptr) map_parts(*window, all);
        if (gpu_ != nullptr) make_multicast(*window, all, buffer);
        if (gpu_ != nullptr) keep_promise(*window, buffer, all);
    } catch (...) {
        close(*window);
        throw;
    }
    return window;
}

void Windows::close(const Window& window) {
    promised_.remove(window);
    symmetric_.remove(window);
    with_multicast_.remove(window);
    if (gpu_ != nullptr) gpu_->finish();  // this rank's puts use what it has mapped
    const WindowPart& part = window.parts[static_cast<std::size_t>(rank())];
    if (part.key != 0 && is_open(connections_.page(), part)) connections_.arena().lent().take_back(part.gate);
    const bool untouched = part.key == 0 || !is_open(connections_.page(), part) ||
                           faults_.close_parts({&connections_.page().gates[part.gate], 1}) ||
                           (gpu_ != nullptr && faults_.failed());
    if (gpu_ != nullptr && window.lent.base != nullptr)
        gpu_->neighbours().forbid(window.lent, faults_.failed() ? brief : timeout_);
    if (untouched) return;
    fail(tuttiTimeout,
         "rank %d: a peer that began to copy to or from the window has not ended that (is it stopped?): its memory "
         "must not be used for anything else",
         rank());
}

void Windows::refuse_closed(const OneSided& o, const RankPage& theirs) const {
    if (theirs.closed.load(std::memory_order_relaxed) != 0)
        fail_by(o.peer, tuttiRemoteError, "rank %d %s rank %d, which has given up", rank(), does(o), o.peer);
    if (is_open(theirs, o.window->parts[static_cast<std::size_t>(o.peer)])) return;
    if (theirs.leaving.load(std::memory_order_relaxed) != 0)
        fail_by(o.peer, tuttiRemoteError, "rank %d %s rank %d, which has destroyed its communicator", rank(), does(o),
                o.peer);
    const bool gets = o.kind == OneSided::Kind::get;
    fail_by(o.peer, tuttiInvalidUsage, "rank %d %s %zu bytes %s a window that rank %d has deregistered", rank(),
            gets ? "gets" : "puts", o.bytes, gets ? "from" : "into", o.peer);
}

/// Copies the next piece of a put or a get.
void Windows::copy_piece(const OneSided& o, std::size_t& done) {
    const WindowPart& part = o.window->parts[static_cast<std::size_t>(o.peer)];
    const std::size_t size = std::min(piece_bytes, o.bytes - done);
    const bool self = o.peer == rank();
    Link* const link = self ? nullptr : connections_.linked(o.peer).link.get();
    RankPage& theirs = self ? connections_.page() : *link->page();
    refuse_closed(o, theirs);
    const Reference there{part.where.region, part.where.offset + o.offset + done};
    Touching touching(connections_.page());
    touching.begin(0);
    refuse_closed(o, theirs);
    std::byte* const memory = self ? reinterpret_cast<std::byte*>(there.offset) : link->see(there, size);
    if (o.kind == OneSided::Kind::get)
        std::memcpy(o.to + done, memory, size);
    else
        std::memcpy(memory, o.from + done, size);
    done += size;
}

void Windows::signal(const OneSided& o) {
    if (o.peer == rank()) return connections_.arena().signals(rank()).raise(o.signal);
    Link& link = *connections_.linked(o.peer).link;
    if (link.page()->closed.load(std::memory_order_relaxed) != 0)
        fail_by(o.peer, tuttiRemoteError, "rank %d signals to rank %d, which has given up", rank(), o.peer);
    link.signals()->raise(o.signal);
    wake(link.page()->wake_up);
}

bool Windows::reaches_by_network(Rank peer) {
    by_network_.resize(static_cast<std::size_t>(ranks()));
    std::optional<bool>& known = by_network_[static_cast<std::size_t>(peer)];
    if (!known) known = gpu_ == nullptr && peer != rank() && connections_.transport_to(peer).needs_engine();
    return *known;
}

void Windows::refuse_left(const OneSided& o) const {
    if (connections_.has_left(o.peer))
        fail_by(o.peer, tuttiRemoteError, "rank %d %s rank %d, which has destroyed its communicator", rank(), does(o),
                o.peer);
}

/// Sends a put or a signal as messages to the peer's engine (net/puts.hpp), as many as there is room for. Data that
/// adapters know are not copied to slots, so they must be acknowledged before the put ends. True if it has ended.
bool Windows::send(const OneSided& o, std::size_t& done) {
    Sender& sender = *connections_.connection(o.peer, one_sided_channel).sender;
    Link& link = *connections_.linked(o.peer).link;
    if (o.bytes > 0 && done == o.bytes) return sender.settled();
    const std::size_t most = connections_.arena().slot() - net::put_header_in_slot;
    const bool inlined = sizeof(net::PutHeader) + o.bytes <= inline_bytes;
    while (true) {
        refuse_left(o);
        if (!sender.ready(!inlined)) return false;
        const std::size_t size = std::min(most, o.bytes - done);
        net::PutHeader put{};
        put.offset = o.offset + done;
        if (size > 0) {
            const WindowPart& part = o.window->parts[static_cast<std::size_t>(o.peer)];
            put.gate = part.gate, put.key = part.key;
        }
        put.signal = static_cast<std::uint8_t>(o.signal);
        put.raises = done + size == o.bytes;
        const std::size_t before = inlined ? sizeof put : net::put_header_in_slot;
        Kind kind = inlined ? Kind::inlined : Kind::slot;
        if (o.bytes >= least_reference && link.puts_from(o.from + done, size, put.gate, put.key)) {
            kind = Kind::reference;
            net::refer_to(sender.cell(), put, o.from + done);
        } else {
            std::byte* const message = inlined ? sender.cell().payload : sender.slot();
            std::memcpy(message, &put, sizeof put);
            if (size > 0) std::memcpy(message + before, o.from + done, size);
        }
        sender.commit(kind, static_cast<std::uint32_t>(before + size), 0);
        sender.ring();
        done += size;
        if (put.raises == 1) return sender.settled();
    }
}

/// Sends a request. The peer's engine answers, and this rank's engine writes the answers to where the get wants them.
bool Windows::ask(const OneSided& o) {
    if (o.kind != OneSided::Kind::get || !reaches_by_network(o.peer)) return false;
    AwaitedMemory& awaited = connections_.arena().awaited();
    Sender& sender = *connections_.connection(o.peer, one_sided_channel).sender;
    if (awaited.state(o.peer).asked == 0) refuse_left(o);  // else its answers are looked at first
    if (!sender.ready(false)) return false;
    awaited.expect(o.peer, {o.to, o.bytes});
    const WindowPart& part = o.window->parts[static_cast<std::size_t>(o.peer)];
    net::PutHeader request{};
    request.offset = o.offset, request.gate = part.gate, request.key = part.key, request.asks = 1;
    const std::uint64_t bytes = o.bytes;
    std::byte* const message = sender.cell().payload;
    std::memcpy(message, &request, sizeof request);
    std::memcpy(message + sizeof request, &bytes, sizeof bytes);
    sender.commit(Kind::inlined, sizeof request + sizeof bytes, 0);
    sender.ring();
    return true;
}

/// Progresses the get that was asked for first. True if all of its answers are here.
bool Windows::fetch(const OneSided& o, std::size_t& done) {
    AwaitedMemory& awaited = connections_.arena().awaited();
    const AwaitedMemory::State state = awaited.state(o.peer);
    if (state.asked == 0) return false;
    done = o.bytes - state.missing;
    if (!state.answered) return false;
    awaited.forget(o.peer);
    return true;
}

std::uint64_t& Windows::taken(Rank peer, int signal) {
    taken_.resize(static_cast<std::size_t>(ranks()));
    return taken_[static_cast<std::size_t>(peer)][static_cast<std::size_t>(signal)];
}

std::uint64_t Windows::arrived(const OneSided::Wanted& wanted) {
    const auto& raised = connections_.arena().signals(wanted.peer).raised[wanted.signal];
    return raised.load(std::memory_order_acquire) - taken(wanted.peer, wanted.signal);
}

bool Windows::advance(const OneSided& o, std::size_t& done) {
    if (o.kind == OneSided::Kind::wait) {
        for (const OneSided::Wanted& wanted : o.wanted) {
            if (arrived(wanted) >= wanted.count) continue;
            if (reaches_by_network(wanted.peer)) connections_.linked(wanted.peer);  // else the signal could not come
            return false;
        }
        for (const OneSided::Wanted& wanted : o.wanted) taken(wanted.peer, wanted.signal) += wanted.count;
        return true;
    }
    const bool gets = o.kind == OneSided::Kind::get;
    if (reaches_by_network(o.peer)) return gets ? fetch(o, done) : send(o, done);
    if (done < o.bytes) copy_piece(o, done);
    if (done < o.bytes) return false;
    if (!gets) signal(o);
    return true;
}

/// diagnose() for a put that waits for room, or a get that waits for answers.
void Windows::diagnose_sent(const OneSided& o, std::chrono::nanoseconds waited) {
    const bool gets = o.kind == OneSided::Kind::get;
    const auto state = [&] { return connections_.arena().awaited().state(o.peer); };
    // A peer's answers come before the news that it has left: look for them once more after that.
    if (gets && connections_.has_left(o.peer) && !state().answered) refuse_left(o);
    if (waited < timeout_) return;
    const double seconds = static_cast<double>(waited.count()) * 1e-9;
    if (gets)
        fail_by(o.peer, tuttiTimeout, "rank %d waited %.1f s for %zu of the %zu bytes that it gets from rank %d%s",
                rank(), seconds, state().asked > 0 ? state().missing : o.bytes, o.bytes, o.peer,
                connections_.told_by(o.peer).c_str());
    fail_by(o.peer, tuttiTimeout, "rank %d waited %.1f s for room to put to rank %d%s", rank(), seconds, o.peer,
            connections_.told_by(o.peer).c_str());
}

void Windows::diagnose(const OneSided& o, Standstill& still) {
    if (o.kind != OneSided::Kind::wait) return diagnose_sent(o, still.lasted(connections_.motion(o.peer)));
    std::uint64_t motion = 0;
    for (const OneSided::Wanted& wanted : o.wanted)
        if (const std::uint64_t come = arrived(wanted); come < wanted.count)
            motion += come + connections_.motion(wanted.peer);
    const std::chrono::nanoseconds waited = still.lasted(motion);
    for (const OneSided::Wanted& wanted : o.wanted) {
        if (arrived(wanted) >= wanted.count) continue;
        // A peer's signals come before the news that it has left: look for them once more after that.
        bool left = connections_.session().has_left(wanted.peer);
        if (reaches_by_network(wanted.peer)) {
            left = connections_.has_left(wanted.peer);
        } else if (wanted.peer != rank() && !left) {
            try {
                left = connections_.linked(wanted.peer).link->page()->leaving.load(std::memory_order_acquire) != 0;
            } catch (const Error&) {  // can't be reached any more, or will soon be declared dead
                left = connections_.session().has_left(wanted.peer);
            }
        }
        const std::uint64_t come = arrived(wanted);
        if (come >= wanted.count || (!left && waited < timeout_)) continue;
        const std::string what = text("for %llu signals %d of rank %d, of which %llu have come",
                                      static_cast<unsigned long long>(wanted.count), wanted.signal, wanted.peer,
                                      static_cast<unsigned long long>(come));
        if (left)
            fail_by(wanted.peer, tuttiRemoteError, "rank %d waits %s, and it has destroyed its communicator", rank(),
                    what.c_str());
        fail_by(wanted.peer, tuttiTimeout, "rank %d waited %.1f s %s%s", rank(),
                static_cast<double>(waited.count()) * 1e-9, what.c_str(), connections_.told_by(wanted.peer).c_str());
    }
}

}  // namespace tutti
