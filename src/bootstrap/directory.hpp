// The rendezvous of a job: it knows who has arrived, tells each rank where its parent in the tree is, and notices
// what only somebody who sees all can notice: ranks that are there twice, disagree, or are missing. A few hundred bytes
// per rank pass through it; the table itself goes through the tree.
#pragma once

#include <map>
#include <string_view>
#include <unordered_map>

#include "base/caught.hpp"
#include "bootstrap/connection.hpp"
#include "bootstrap/identity.hpp"

namespace tutti::bootstrap {

/// Each rank connects to its parent; the root is rank 0.
inline constexpr int tree_width = 8;
constexpr Rank parent_of(Rank rank) {
    return rank == 0 ? -1 : (rank - 1) / tree_width;
}

/// Tells the directory's connections from those of members: see Handshake.
inline constexpr std::uint64_t directory_tag = std::uint64_t{1} << 32;

/// "3, 5-7"
std::string list_ranks(const std::vector<Rank>& ranks);

class Directory : public ConnectionUser, public std::enable_shared_from_this<Directory> {
  public:
    /// Opens the rendezvous in this process; it stays until nobody needs it. Throws tuttiSystemError.
    static std::shared_ptr<Directory> open(Service& service, const Rendezvous& rendezvous);
    /// The one of this process for that rendezvous, if there is one.
    static std::shared_ptr<Directory> find(Service& service, const Rendezvous& rendezvous);

    /// Unless all have met: nobody will, and those that wait or come in the next seconds are told so.
    void give_up(std::string_view why) {
        fail_all([&] { return Failure{tuttiRemoteError, -1, std::string(why)}; });
    }

    /// Whoever comes later finds nobody.
    void close();

    ~Directory() override;
    void failed(Connection&, const Error& error) override {
        fail_all([&] {
            return Failure{tuttiSystemError, -1, text("the place where the ranks meet: %s", error.what())};
        });
    }
    Address tcp_address() const { return tcp_ ? tcp_->address() : Address{}; }

    /// Sessions of this process that came through here. While there are some, it can still turn away late-comers with a
    /// reason.
    void add_session() { ++sessions_; }
    void remove_session() {
        --sessions_;
        close_if_idle();
    }

  private:
    struct Seat {
        Member member;
        std::shared_ptr<Connection> connection;
        bool settled = false;
    };
    class Probe;
    enum class State { gathering, complete, failed };

    Directory(Service& service, const Rendezvous& rendezvous)
        : service_(service),
          local_(rendezvous.local()),
          secret_(rendezvous.secret.derive("tutti members")),
          serves_many_(rendezvous.has(Rendezvous::rank0_opens)) {}
    void opened(Connection& connection) override;
    void received(Connection& connection, Message& message, Fd descriptor) override;
    void closed(Connection& connection, const Loss& loss) override;
    void on_register(Connection& connection, const Register& request);
    bool admit(Connection& connection, const Register& request);
    const Member* former_of(const Register& request) const;
    bool is_again(const Member& member);
    void lose(Rank rank, const Loss& loss);
    void probe(Rank rank, const Loss& loss);
    void is_there(Rank rank);
    void on_settled(Connection& connection);
    void on_ask(const Ask& ask);
    void tell_parent(Seat& seat);
    /// Unless all have met. If there is no memory for what `say` returns, those that wait hear of the end of their
    /// connections, and late-comers that memory was lacking.
    template <class Say>
    void fail_all(Say&& say) {
        if (state_ != State::gathering) return;
        state_ = State::failed;
        try {
            tell_all(say());
        } catch (...) {
            log_caught("what has gone wrong where ranks meet");
            hang_up();
        }
        linger();
    }
    void tell_all(const Failure& failure);
    void hang_up();
    void linger();
    void close_tcp();
    void close_if_idle();

    Service& service_;
    Address local_;
    const Secret secret_;     // of members
    const bool serves_many_;  // one job after the other, as a unique id does not
    std::shared_ptr<Listener> unix_, tcp_;
    State state_ = State::gathering;
    int ranks_ = 0;
    Member first_;  // who said so
    std::map<Rank, Seat> seats_;
    std::vector<std::shared_ptr<Probe>> probes_;
    int settling_ = 0;                                                       // seats with a connection
    std::unordered_map<Connection*, std::shared_ptr<Connection>> visitors_;  // all connections, registered or not
    std::optional<Failure> failure_;
    Service::Later lingering_;  // its end
    int sessions_ = 0;
};

}  // namespace tutti::bootstrap
