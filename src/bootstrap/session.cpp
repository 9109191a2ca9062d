// Session for user threads: each call hands its work to the service thread.
#include "bootstrap/session.hpp"

#include <fcntl.h>

#include "base/result.hpp"
#include "bootstrap/membership.hpp"

namespace tutti {
namespace bootstrap {
namespace {

Fd duplicate(const Fd& fd) {
    Fd copy(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy) fail_errno("duplicating a file descriptor failed (see `ulimit -n`)");
    return copy;
}

class SocketSession : public Session {
  public:
    explicit SocketSession(std::shared_ptr<Membership> membership) : m_(std::move(membership)) {}

    ~SocketSession() override {
        Service& service = m_->service();
        // In a forked child the membership's descriptors are closed already, and their numbers may be somebody else's.
        if (service.is_inherited())
            new std::shared_ptr<Membership>(std::move(m_));
        else
            service.run([&] {
                if (!m_->has_left(rank()))
                    m_->raise({tuttiRemoteError, rank(), m_->record(rank()).member.text() + " gave up"});
                m_->leave();
            });
    }

    Rank rank() const override { return m_->rank(); }
    int ranks() const override { return m_->ranks(); }

    std::span<const std::byte> card(Rank rank) const override {
        check_rank(rank);
        return m_->record(rank).card;
    }

    std::string name(Rank rank) const override {
        check_rank(rank);
        return m_->record(rank).member.text();
    }
    Secret secret(std::string_view purpose) const override { return m_->secret().derive(purpose); }

    void offer(std::uint64_t key, const Fd& fd) override {
        m_->set_offer(key, std::make_shared<Fd>(duplicate(fd)));
        m_->service().post([m = m_, key] { m->offer_changed(key); });
    }
    void withdraw(std::uint64_t key) override { m_->set_offer(key, nullptr); }

    Fd fetch(Rank peer, std::uint64_t key, Deadline deadline) override;

    void on_fault(std::function<void(const Fault&)> listener) override { m_->set_listener(std::move(listener)); }
    void raise(const Fault& fault) override {
        m_->service().run([&] { m_->raise(fault); });
    }
    std::optional<Fault> fault() const override { return m_->fault(); }
    void leave() override {
        m_->service().run([&] { m_->leave(); });
        m_->wait_listener();
    }
    bool has_left(Rank peer) const override { return m_->has_left(peer); }

  private:
    void check_rank(Rank rank) const {
        if (rank < 0 || rank >= m_->ranks())
            fail(tuttiInvalidArgument, "there is no rank %d among %d", rank, m_->ranks());
    }
    std::shared_ptr<Membership> m_;
};

Fd SocketSession::fetch(Rank peer, std::uint64_t key, Deadline deadline) {
    check_rank(peer);
    const Member& member = m_->record(peer).member;
    if (peer == rank()) {
        const auto mine = m_->offered(key);
        if (!mine)
            fail(tuttiInvalidUsage, "this rank offers no descriptor under key %llu",
                 static_cast<unsigned long long>(key));
        return duplicate(*mine);
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
    if (!pending->descriptor) throw Error(pending->trouble.code, pending->trouble.text);
    return std::move(pending->descriptor);
}

}  // namespace
}  // namespace bootstrap

std::string Session::name(Rank rank) const {
    return text("rank %d", rank);
}

std::shared_ptr<Session> Session::join(const Identity& identity, Rank rank, int ranks, std::span<const std::byte> card,
                                       std::chrono::milliseconds timeout) {
    using namespace bootstrap;
    const Meeting meeting = Meeting::of(identity);
    if (ranks < 1 || ranks > ranks_limit)
        fail(tuttiInvalidArgument, "a job of %d ranks: 1 to %d are possible", ranks, ranks_limit);
    if (rank < 0 || rank >= ranks) fail(tuttiInvalidArgument, "rank %d is not one of 0 to %d", rank, ranks - 1);
    if (card.size() > card_limit)
        fail(tuttiInvalidArgument, "a card of %zu bytes: at most %zu are possible", card.size(), card_limit);
    if (ranks == 1 && meeting.has(Meeting::alone)) return in_process({Bytes(card.begin(), card.end())}).front();
    const std::shared_ptr<Service> service = Service::get();
    auto membership = std::make_shared<Membership>(service, meeting, rank, ranks, card, timeout);
    if (!service->run([&] { membership->start(); })) fail(tuttiSystemError, "the process is ending");
    membership->wait_joined();
    return std::make_shared<SocketSession>(std::move(membership));
}

}  // namespace tutti
