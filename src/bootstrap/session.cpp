// Session for user threads: each call hands its work to the service thread.
#include "bootstrap/session.hpp"

#include <algorithm>
#include <thread>

#include "base/caught.hpp"
#include "base/peer_error.hpp"
#include "base/result.hpp"
#include "bootstrap/membership.hpp"

namespace tutti {
namespace bootstrap {
namespace {

class SocketSession : public Session {
  public:
    explicit SocketSession(std::shared_ptr<Membership> membership) : m_(std::move(membership)) {}

    ~SocketSession() override {
        Service& service = m_->service();
        // In a forked child the membership's descriptors are closed already, and their numbers may have been reused. So
        // the child leaks the membership.
        if (service.is_inherited())
            new std::shared_ptr<Membership>(std::move(m_));
        else
            service.run([this] {
                shielded("a session that is given up", [this] {
                    if (!m_->has_left(rank()))
                        m_->raise({tuttiRemoteError, rank(), m_->member(rank()).text() + " gave up"});
                });
                m_->leave();
            });
    }

    Rank rank() const override { return m_->rank(); }
    int ranks() const override { return m_->ranks(); }
    JoinTimes join_times() const override { return m_->join_times(); }
    std::chrono::microseconds round_trip() const override { return m_->round_trip(); }

    Bytes info(Rank rank) const override {
        check_rank(rank);
        return m_->record(rank).info;
    }

    std::string name(Rank rank) const override {
        check_rank(rank);
        return m_->member(rank).text();
    }
    bool is_here(Rank rank) const override {
        check_rank(rank);
        return m_->is_near(m_->member(rank));
    }
    std::uint64_t process(Rank rank) const override {
        check_rank(rank);
        return m_->process(rank);
    }
    Secret secret(std::string_view purpose) const override { return m_->secret().derive(purpose); }

    void offer(std::uint64_t key, const Fd& fd) override {
        m_->set_offer(key, std::make_shared<Fd>(fd.duplicate()));
        m_->service().post([m = m_, key] { m->offer_changed(key); });
    }
    void withdraw(std::uint64_t key) override { m_->set_offer(key, nullptr); }

    Fd fetch(Rank peer, std::uint64_t key, Deadline deadline) override;

    void on_fault(std::function<void(const Fault&)> listener) override { m_->set_listener(std::move(listener)); }
    void raise(const Fault& fault) override {
        m_->service().run([&] { m_->raise(fault); });
    }
    std::optional<Fault> fault() const override { return m_->fault(); }
    std::optional<Fault> fault_behind(Rank peer, Deadline deadline) override {
        check_rank(peer);
        return m_->fault_behind(peer, deadline);
    }
    std::vector<Rank> dead() const override { return m_->dead(); }
    std::vector<Bytes> exchange(std::uint64_t number, View mine, Deadline deadline) override {
        if (!m_->service().run([&] { m_->tell(number, mine); }))
            fail(tuttiSystemError, "the process is ending, or was forked");
        return m_->wait_told(number, deadline);
    }
    Agreed agree(const std::vector<Rank>& out, bool ok, Deadline deadline) override;
    void leave() override {
        m_->service().run([&] { m_->leave(); });
        m_->wait_listener();
    }
    bool has_left(Rank peer) const override { return m_->has_left(peer); }
    void rest() override {
        m_->rest();
        m_->wait_listener();
    }

  private:
    void check_rank(Rank rank) const {
        if (rank < 0 || rank >= m_->ranks())
            fail(tuttiInvalidArgument, "there is no rank %d among %d", rank, m_->ranks());
    }
    std::shared_ptr<Membership> m_;
};

Fd SocketSession::fetch(Rank peer, std::uint64_t key, Deadline deadline) {
    check_rank(peer);
    const Member member = m_->member(peer);
    if (peer == rank()) {
        const auto mine = m_->offered(key);
        if (!mine)
            fail(tuttiInvalidUsage, "this rank offers no descriptor under key %llu",
                 static_cast<unsigned long long>(key));
        return mine->duplicate();
    }
    if (!m_->is_near(member))
        fail(tuttiInvalidUsage, "%s is on another host: descriptors do not travel", member.text().c_str());
    const auto pending = std::make_shared<PendingFetch>();
    pending->peer = peer;
    pending->key = key;
    if (!m_->service().run([&] { m_->request(pending); }))
        fail(tuttiSystemError, "the process is ending, or was forked");
    if (!m_->wait_done(*pending, deadline)) m_->service().run([&] { m_->cancel(pending); });
    if (!m_->wait_done(*pending, Clock::now()))
        fail(tuttiTimeout, "%s did not hand over descriptor %llu in time", member.text().c_str(),
             static_cast<unsigned long long>(key));
    if (!pending->descriptor) throw PeerError(pending->trouble.code, pending->trouble.text, pending->trouble.origin);
    return std::move(pending->descriptor);
}

Agreed SocketSession::agree(const std::vector<Rank>& out, bool ok, Deadline deadline) {
    if (!m_->service().run([&] { m_->agree(out, ok); })) fail(tuttiSystemError, "the process is ending, or was forked");
    if (const auto agreed = m_->wait_agreed(deadline)) return *agreed;
    std::vector<Rank> awaited;
    m_->service().run([&] {
        awaited = m_->awaited();
        m_->stop_agreeing();
    });
    if (const auto agreed = m_->wait_agreed(Clock::now())) return *agreed;
    if (m_->has_left(rank())) fail(tuttiRemoteError, "rank %d has left", rank());
    fail(tuttiTimeout, "rank %d waited for rank%s %s to agree on who is left, until the time-out", rank(),
         awaited.size() == 1 ? "" : "s", list_ranks(awaited).c_str());
}

constexpr std::chrono::milliseconds watch_interval{20}, an_hour{3'600'000};

/// The text of the latest death that the session has heard of, else of its fault.
std::string latest(const Session& session) {
    const std::vector<Rank> dead = session.dead();
    return dead.empty() ? session.fault().value().text : session.name(dead.back()) + " died";
}

}  // namespace
}  // namespace bootstrap

Fault copy_of(const Fault& fault) noexcept {
    try {
        return fault;
    } catch (const std::bad_alloc&) {
        return {fault.code, fault.origin, no_memory, fault.teller, fault.died, fault.silent};
    }
}

std::string Session::name(Rank rank) const {
    return text("rank %d", rank);
}

std::vector<Rank> Session::failed_ranks(const std::optional<Fault>& fault) const {
    std::vector<Rank> all;
    if (fault) {
        const bool other = fault->origin >= 0 && fault->origin != rank();
        const Rank first = other ? fault->origin : fault->teller;  // a fault that blames this rank is the teller's word
        if (first >= 0 && first != rank()) all.push_back(first);
    }
    for (const Rank r : dead())
        if (std::ranges::count(all, r) == 0) all.push_back(r);
    return all;
}

std::shared_ptr<Session> Session::join(const Identity& identity, Rank rank, int ranks, std::span<const std::byte> info,
                                       std::chrono::milliseconds timeout, std::span<const std::uint64_t> processes,
                                       SessionOrigin origin, const bootstrap::Address& here) {
    using namespace bootstrap;
    const Rendezvous rendezvous = Rendezvous::of(identity);
    if (ranks < 1 || ranks > ranks_limit)
        fail(tuttiInvalidArgument, "a job of %d ranks: 1 to %d are possible", ranks, ranks_limit);
    if (rank < 0 || rank >= ranks) fail(tuttiInvalidArgument, "rank %d is not one of 0 to %d", rank, ranks - 1);
    if (info.size() > endpoint_info_limit)
        fail(tuttiInvalidArgument, "an endpoint info of %zu bytes: at most %zu are possible", info.size(),
             endpoint_info_limit);
    if (ranks == 1 && rendezvous.has(Rendezvous::alone)) return in_process({Bytes(info.begin(), info.end())}).front();
    const std::shared_ptr<Service> service = Service::get();
    auto membership = std::make_shared<Membership>(service, rendezvous, rank, ranks, info, timeout, processes, here);
    if (!service->run([&] { membership->start(); })) fail(tuttiSystemError, "the process is ending");
    const auto is_news = [&] { return origin.session != nullptr && origin.session->news() != origin.news; };
    try {
        const bool watches = origin.session != nullptr;
        while (!membership->wait_joined(Clock::now() + (watches ? watch_interval : an_hour)))
            if (is_news())
                service->run([&] {
                    membership->give_up({tuttiRemoteError, rank, latest(*origin.session), rank, false});
                });
    } catch (const Error& error) {
        // The end of a rendezvous names no rank. If a member of the origin session has died, its news is on the way.
        if (origin.session == nullptr || error.code() != tuttiRemoteError || membership->fault()->origin >= 0) throw;
        for (const Deadline limit = Clock::now() + std::chrono::seconds(1); !is_news() && Clock::now() < limit;)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (!is_news()) throw;
        throw Error(tuttiRemoteError, latest(*origin.session));
    }
    try {
        return std::make_shared<SocketSession>(membership);
    } catch (...) {  // there is no session to end the membership
        service->run([&] { membership->leave(); });
        throw;
    }
}

}  // namespace tutti
