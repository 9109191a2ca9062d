// The rendezvous of a job. It registers the ranks that arrive, tells each where its parent in the tree is, and reports
// what no single rank can notice: ranks that arrive twice, disagree on the number of ranks, or are missing. A few
// hundred bytes per rank pass through it; the table of all records goes through the tree.
#pragma once

#include <map>
#include <string_view>
#include <unordered_map>

#include "base/caught.hpp"
#include "bootstrap/connection.hpp"
#include "bootstrap/listener.hpp"
#include "bootstrap/rendezvous.hpp"

namespace tutti::bootstrap {

/// Each rank connects to its parent; the root is rank 0.
inline constexpr int tree_width = 8;
constexpr Rank parent_of(Rank rank) {
    return rank == 0 ? -1 : (rank - 1) / tree_width;
}

/// The handshake's tag for connections to the directory; members' listeners have their rank as the tag.
inline constexpr std::uint64_t directory_tag = std::uint64_t{1} << 32;

/// "3, 5-7"
std::string list_ranks(const std::vector<Rank>& ranks);

/// Kept alive by the service until close(). For the service thread alone.
class Directory : public ConnectionUser, public std::enable_shared_from_this<Directory> {
  public:
    /// Opens the rendezvous in this process. It closes itself when it is not needed any more. Throws AddressTaken,
    /// tuttiSystemError.
    static std::shared_ptr<Directory> open(Service& service, const Rendezvous& rendezvous);
    /// The same where rank 0 of a job has to, and calls it. Nothing if it is open already, here or in another process:
    /// whoever calls that one is told what is wrong. Throws tuttiSystemError, which names the setting with the address.
    static void open_by_rank0(Service& service, const Rendezvous& rendezvous);
    /// This process' directory for that rendezvous; nullptr if there is none.
    static std::shared_ptr<Directory> find(Service& service, const Rendezvous& rendezvous);

    /// Ranks that wait, or arrive in the next seconds, are told why they will not meet. Does nothing if all have met.
    void give_up(std::string_view why) {
        fail_all([&] { return Failure{tuttiRemoteError, -1, std::string(why)}; });
    }

    /// Closes all connections and listeners. Ranks that arrive later find nobody.
    void close();

    ~Directory() override;
    void failed(Connection&, const Error& error) override {
        fail_all([&] {
            return Failure{tuttiSystemError, -1, text("the place where the ranks meet: %s", error.what())};
        });
    }
    Address tcp_address() const { return tcp_ ? tcp_->address() : Address{}; }

    /// Count the sessions of this process that joined here. While there are some, the directory stays open after all
    /// have met, to tell late-comers why they are turned away.
    void add_session() { ++sessions_; }
    void remove_session() {
        --sessions_;
        close_if_idle();
    }

  private:
    struct Seat {
        Member member;
        std::shared_ptr<Connection> connection;  // nullptr once it is closed
        bool settled = false;                    // has found its parent; of rank 0: all have joined
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
    /// Fails the rendezvous and tells all ranks the Failure that `say` returns. Does nothing unless ranks still gather.
    /// If there is no memory for that, it closes their connections, and tells late-comers that it is out of memory.
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
    const Secret secret_;     // with which members authenticate each other
    const bool serves_many_;  // jobs may meet here one after the other; a unique id serves only one
    std::shared_ptr<Listener> unix_, tcp_;
    State state_ = State::gathering;
    int ranks_ = 0;               // of the job; 0 until a rank has registered
    Member first_;                // the rank that said so
    std::map<Rank, Seat> seats_;  // by rank
    std::vector<std::shared_ptr<Probe>> probes_;
    int settling_ = 0;                                                       // number of seats with a connection
    std::unordered_map<Connection*, std::shared_ptr<Connection>> visitors_;  // all connections, registered or not
    std::optional<Failure> failure_;
    std::string turned_away_;   // for error texts: who has called last without being let in, and why; mostly empty
    Service::Later lingering_;  // closes a failed directory; allocated beforehand
    int sessions_ = 0;          // of this process that joined here
};

}  // namespace tutti::bootstrap
