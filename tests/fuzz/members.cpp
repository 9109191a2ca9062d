// A member of a job that proves itself and seals its frames, and lies in them: any frames in any order, over several
// connections, that end in between, to a real rank and to the real place where ranks meet.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "bootstrap/membership.hpp"
#include "fuzz.hpp"

using namespace tutti;
using namespace tutti::bootstrap;

namespace {

constexpr std::size_t most_liars = 6, most_actions = 64, most_descriptors = 4;

std::ptrdiff_t open_descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

/// Our end of a connection. It reads whatever comes, and believes nothing of it.
class Liar {
  public:
    Liar(Fd fd, const Secret& secret, std::uint64_t tag, bool initiator) : fd_(std::move(fd)) {
        const linger at_once{1, 0};  // no port of TCP stays taken
        setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        const int on = 1;
        setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (!greet(Handshake(secret, tag, initiator), initiator)) fd_.reset();
    }

    bool is_open() const { return static_cast<bool>(fd_); }
    void hang_up() { fd_.reset(); }

    /// With so many descriptors beside it.
    void say(Bytes frame, std::size_t descriptors) {
        append(frame, seal_.next(frame));
        put(frame, descriptors);
    }

    void listen() {
        std::byte room[4096];
        while (fd_ && recv(fd_.get(), room, sizeof room, MSG_DONTWAIT) > 0) {
        }
    }

  private:
    bool greet(Handshake handshake, bool initiator) {
        if (initiator && wait(POLLOUT)) put(handshake.hello());
        if (!handshake.read_hello(take(hello_size))) return false;
        if (!initiator) put(handshake.hello()), put(handshake.proof());
        if (!handshake.check_proof(take(proof_size))) return false;
        if (initiator) put(handshake.proof());
        seal_ = handshake.outgoing();
        return true;
    }

    void put(View bytes, std::size_t descriptors = 0) {
        iovec io{const_cast<std::byte*>(bytes.data()), bytes.size()};
        msghdr message{};
        message.msg_iov = &io;
        message.msg_iovlen = 1;
        alignas(cmsghdr) char control[CMSG_SPACE(most_descriptors * sizeof(int))] = {};
        if (descriptors > 0) {
            message.msg_control = control;
            message.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
            cmsghdr* c = CMSG_FIRSTHDR(&message);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
            for (std::size_t i = 0; i < descriptors; ++i)
                std::memcpy(CMSG_DATA(c) + i * sizeof(int), &descriptor, sizeof(int));
        }
        if (sendmsg(fd_.get(), &message, MSG_NOSIGNAL) < 0) fd_.reset();  // the other end has gone, or reads no more
    }

    bool wait(short events) {
        pollfd ready{fd_.get(), events, 0};
        return fd_ && poll(&ready, 1, 2000) > 0;
    }

    Bytes take(std::size_t size) {
        Bytes all(size);
        for (std::size_t at = 0; at < size;) {
            if (!wait(POLLIN)) return {};
            const ssize_t got = recv(fd_.get(), all.data() + at, size - at, 0);
            if (got <= 0) return {};
            at += static_cast<std::size_t>(got);
        }
        return all;
    }

    static constexpr int descriptor = STDERR_FILENO;
    Fd fd_;
    Seal seal_;
};

/// The messages that an input makes.
struct Tales {
    fuzz::Input& in;
    int ranks;
    std::uint64_t process;  // no other input has those that follow it
    Address ours, its;

    Rank rank() {
        const std::uint32_t which = in.below(16);
        return which < 14 ? static_cast<Rank>(which) % ranks : which == 14 ? in.number<Rank>() : -1;
    }
    /// No address of anybody else.
    Address address() {
        switch (in.below(5)) {
            case 0:
                return ours;
            case 1:
                return its;
            case 2:
                return {};
            case 3:
                return Address::local({});
            default: {
                Address nobody = Address::loopback();
                nobody.port = 1;
                return nobody;
            }
        }
    }
    Member member() {
        Member m;
        m.rank = rank();
        m.host = in.below(4) == 3 ? 1 : host_id();
        const std::uint32_t which = in.below(8);
        m.process = which == 7 ? 0 : which == 6 ? process_id() : process + which;
        m.local = address();
        m.remote = address();
        return m;
    }
    Bytes bytes(std::size_t most) {
        const View some = in.bytes(std::min<std::size_t>(in.below(256), most));
        return {some.begin(), some.end()};
    }
    std::vector<Rank> list() {
        std::vector<Rank> all(in.below(12));
        for (Rank& r : all) r = rank();
        return all;
    }
    Record record() {
        Record r{member(), bytes(endpoint_info_limit), {}};
        if (r.member.rank == 0) r.share = Secret();
        return r;
    }
    Failure failure() {
        const auto code = static_cast<tuttiResult_t>(1 + in.below(tuttiNumResults));
        const Rank origin = rank(), teller = rank();
        const std::uint32_t how = in.below(4);
        const bool died = how % 2 == 1, silent = how == 3;
        const Bytes said = bytes(text_limit);
        return {code,   origin, std::string(reinterpret_cast<const char*>(said.data()), said.size()),
                teller, died,   silent};
    }

    Message message() {
        switch (in.below(15)) {
            case 0: {
                const int others = in.below(8) == 7 ? in.number<int>() : ranks;
                return Register{others, member()};
            }
            case 1:
                return Parent{member()};
            case 2:
                return Settled{};
            case 3: {
                const int others = in.below(8) == 7 ? in.number<int>() : ranks;
                const Rank from = rank();
                return Attach{others, from, in.flag()};
            }
            case 4:
                return Welcome{};
            case 5:
                return record();
            case 6:
                return Ask{in.number<std::uint32_t>()};
            case 7:
                return failure();
            case 8:
                return Left{list()};
            case 9: {
                const std::uint32_t id = in.below(4);
                return Fetch{id, in.below(4)};
            }
            case 10: {
                const std::uint32_t id = in.below(4);
                return Give{id, in.flag()};
            }
            case 11:
                return Stripe{rank(), 0, 1, 0, Protection::none, in.number<std::uint32_t>()};
            case 12:
                return Accepted{in.number<std::uint8_t>()};
            case 13: {
                const auto step = static_cast<Agree::Step>(in.below(Agree::exclude + 1));
                const bool more = in.flag(), ok = in.flag();
                const std::uint64_t call = in.below(4), number = in.below(4);
                const Bytes invitation(in.flag() ? invitation_size : 0, std::byte{1});
                const std::uint64_t serial = in.below(16), heard = in.below(16);
                return Agree{step, more, ok, call, number, list(), invitation, serial, heard};
            }
            default: {
                const Rank from = rank();
                const std::uint64_t number = in.below(4);
                return Note{from, number, bytes(note_limit)};
            }
        }
    }
};

class World {
  public:
    explicit World(fuzz::Input& in)
        : in_(in), ranks_(1 + static_cast<int>(in.below(10))), self_(static_cast<Rank>(in.below(16)) % ranks_) {
        const std::uint32_t kind = in.below(8);
        const bool tcp = kind >= 6, meets_here = kind % 2 == 1;
        rendezvous_.flags = tcp ? Rendezvous::tcp_only : Rendezvous::one_host;
        rendezvous_.secret = Secret::random();
        rendezvous_.host = host_id();
        if (tcp) rendezvous_.tcp = Address::loopback();
        if (meets_here) {
            service_->run([&] { directory_ = Directory::open(*service_, rendezvous_); });
            if (tcp) rendezvous_.tcp = directory_->tcp_address();
        } else {
            meeting_ = listen_at(tcp ? rendezvous_.tcp : rendezvous_.local());
            if (tcp) rendezvous_.tcp = bound_address(meeting_);
        }
        ours_ = tcp ? Address::loopback() : Address::local(Secret::random().name("ours"));
        parent_ = listen_at(ours_);
        if (tcp) ours_ = bound_address(parent_);
        members_ = rendezvous_.secret.derive("tutti members");
        member_ = std::make_shared<Membership>(service_, rendezvous_, self_, ranks_, View(), std::chrono::minutes(1),
                                               std::span<const std::uint64_t>());
        service_->run([&] { member_->start(); });
    }

    ~World() {
        liars_.clear();
        settle();
        service_->run([&] { member_->leave(), member_->shut(); });
        if (directory_) service_->run([&] { directory_->close(); });
        settle();
    }
    World(const World&) = delete;

    void act() {
        switch (in_.below(6)) {
            case 0:
                return call();
            case 1:
                return answer();
            case 2:
            case 3:
                return lie();
            case 4:
                if (Liar* liar = one()) liar->hang_up();
                std::erase_if(liars_, [](const Liar& l) { return !l.is_open(); });
                return;
            default:
                return use();
        }
    }

    /// Until everything has arrived that was sent; then the rank is content, or has an error that says why.
    void settle() {
        TUTTI_ASSERT(service_->run([] {}));
        for (Liar& liar : liars_) liar.listen();
        if (const auto fault = member_->fault()) {
            TUTTI_ASSERT(!fault->text.empty() && fault->code > tuttiSuccess && fault->code < tuttiNumResults);
            TUTTI_ASSERT(fault->origin >= -1 && fault->origin < ranks_);
        }
        const bool joined = has_joined();
        TUTTI_ASSERT(joined || !joined_ || member_->fault());
        joined_ = joined;
        if (joined)
            for (Rank r = 0; r < ranks_; ++r) TUTTI_ASSERT(member_->record(r).member.rank == r);
        for (const Rank r : member_->dead()) TUTTI_ASSERT(r >= 0 && r < ranks_ && r != self_);
    }

  private:
    bool has_joined() {
        bool joined = false;
        const bool content = fuzz::accepts([&] { joined = member_->wait_joined(Clock::now()); });
        TUTTI_ASSERT(!content || !failed_);
        failed_ = !content;
        return content && joined;
    }
    Liar* one() { return liars_.empty() ? nullptr : &liars_[in_.below(most_liars) % liars_.size()]; }

    void add(Fd fd, const Secret& secret, std::uint64_t tag, bool initiator) {
        if (!fd || liars_.size() >= most_liars) return;
        Liar liar(std::move(fd), secret, tag, initiator);
        if (liar.is_open()) liars_.push_back(std::move(liar));
    }
    Address its() const {
        const Member m = member_->member(self_);
        return rendezvous_.has(Rendezvous::tcp_only) && m.remote ? m.remote : m.local;
    }
    /// The rank, or the place where the ranks meet.
    void call() {
        if (in_.flag() && directory_)
            return add(connect_to(rendezvous_.tcp ? rendezvous_.tcp : rendezvous_.local()), rendezvous_.secret,
                       directory_tag, true);
        add(connect_to(its()), members_, static_cast<std::uint64_t>(self_), true);
    }
    /// Whoever the rank takes for the place where the ranks meet, or for its parent.
    void answer() {
        const bool meeting = in_.flag();
        const Rank as = meeting ? 0 : static_cast<Rank>(in_.below(16)) % ranks_;
        const Fd& listener = meeting ? meeting_ : parent_;
        if (!listener) return;
        pollfd ready{listener.get(), POLLIN, 0};
        if (poll(&ready, 1, 0) <= 0) return;
        Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (meeting) return add(std::move(fd), rendezvous_.secret, directory_tag, false);
        add(std::move(fd), members_, static_cast<std::uint64_t>(as), false);
    }
    void lie() {
        for (bool more = true; more && !in_.empty();) {
            Liar* const liar = one();
            const std::uint32_t how = in_.below(8);  // 5 to 7: with descriptors
            more = how == 4;                         // another one before anybody has looked at this one
            Tales tales{in_, ranks_, process_, ours_, its()};
            const Bytes frame = encode(tales.message());
            if (liar != nullptr) liar->say(frame, how >= 5 ? how - 4 : 0);
        }
    }
    /// What the rank's own threads do meanwhile.
    void use() {
        Tales tales{in_, ranks_, process_, ours_, its()};
        const std::uint32_t what = in_.below(8);
        const std::uint64_t number = in_.below(4);
        const Bytes some = tales.bytes(note_limit);
        std::vector<Rank> out = tales.list();
        const bool ok = in_.flag(), joined = has_joined();
        std::erase_if(out, [&](Rank r) { return r < 0 || r >= ranks_ || r == self_; });
        service_->run([&] { carry_out(what, number, some, out, ok, joined); });
    }
    void carry_out(std::uint32_t what, std::uint64_t number, const Bytes& some, std::vector<Rank>& out, bool ok,
                   bool joined) {
        const auto is_near = [&](Rank r) { return member_->is_near(member_->member(r)); };
        if (what == 0) return member_->set_offer(number, std::make_shared<Fd>(dup(STDERR_FILENO)));
        if (what == 1) return member_->offer_changed(number);
        if (what == 2) return member_->give_up({tuttiRemoteError, -1, "given up"});
        if (what == 3 && ok && number == 0) return member_->leave();
        if (!joined) return;
        if (what == 4) return member_->tell(number, some);
        if (what == 5 && !out.empty() && is_near(out.front())) {
            const auto pending = std::make_shared<PendingFetch>();
            pending->peer = out.front();
            pending->key = number;
            return member_->request(pending);
        }
        if (what == 6 && ok) return member_->raise({tuttiRemoteError, self_, "raised"});
        if (what != 7) return;
        for (Rank r = 0; r < ranks_; ++r)
            if (!is_near(r) && std::ranges::count(out, r) == 0) out.push_back(r);
        member_->stop_agreeing();
        member_->agree(out, ok);
    }

    fuzz::Input& in_;
    const int ranks_;
    const Rank self_;
    const std::uint64_t process_ = [] {
        static std::uint64_t last = std::uint64_t{1} << 32;
        return last += 16;
    }();
    const std::shared_ptr<Service> service_ = Service::get();
    Rendezvous rendezvous_;
    Secret members_;
    std::shared_ptr<Directory> directory_;
    Fd meeting_, parent_;
    Address ours_;
    std::shared_ptr<Membership> member_;
    std::vector<Liar> liars_;
    bool joined_ = false, failed_ = false;
};

}  // namespace

FUZZ_TARGET(members) {
    static const std::shared_ptr<Service> service = Service::get();
    const std::ptrdiff_t before = open_descriptors();
    {
        World world(in);
        for (std::size_t actions = 0; !in.empty() && actions < most_actions; ++actions) {
            world.act();
            world.settle();
        }
    }
    TUTTI_ASSERT(open_descriptors() == before);
}
