// Communicators made from others: by split, shrink and grow; revoke, which prepares a failed one for that; and suspend
// and resume, which bring the same one back.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "api/making.hpp"
#include "tutti/tutti.h"

using namespace tutti;

namespace {

std::vector<Rank> all_but(std::span<const Rank> excluded, int all) {
    std::vector<Rank> members(static_cast<std::size_t>(all));
    std::iota(members.begin(), members.end(), 0);
    for (const Rank r : excluded) std::erase(members, r);
    return members;
}

/// The processes of the members, by member: a wait for one of them to join ends when its process ends.
std::vector<std::uint64_t> processes_of(const Session& session, std::span<const Rank> members) {
    std::vector<std::uint64_t> all;
    for (const Rank r : members) all.push_back(session.process(r));
    return all;
}

/// An exchange among all ranks of a communicator for a setup call. It runs over the communicator itself or, if that was
/// revoked or is busy with kernels, over its session.
class SetupExchange {
  public:
    explicit SetupExchange(CommunicatorPtr parent, bool revoked)
        : comm_(std::move(parent)),
          news_(comm_->session().news()),
          by_session_(comm_->connections().on_gpus() || revoked) {}

    /// Begins the setup call's work: call it first, in the call's turn. Turns come in the same order on all ranks. Not
    /// before, since a group that is refused runs none of its calls.
    void begin() {
        if (by_session_) numbers_ = {comm_->next_exchange(), comm_->next_exchange()};
    }

    /// Sends `mine` to all ranks; returns what every rank sent, by rank. At most two times.
    template <class T>
    std::vector<T> all_gather(const T& mine) {
        std::vector<T> all(static_cast<std::size_t>(comm_->ranks()));
        if (by_session_) {
            const auto bytes = comm_->session().exchange(numbers_.at(gathered_++), std::as_bytes(std::span(&mine, 1)),
                                                         Clock::now() + comm_->options().timeout);
            for (std::size_t r = 0; r < all.size(); ++r) {
                if (bytes[r].size() != sizeof(T))
                    fail(tuttiInvalidUsage, "rank %zu calls another function than rank %d", r, comm_->rank());
                std::memcpy(&all[r], bytes[r].data(), sizeof(T));
            }
            return all;
        }
        Operation o;
        o.collective = Collective::all_gather;
        o.type = DataType::uint8;
        o.count = sizeof mine;
        o.input = &mine;
        o.output = all.data();
        InTurn turn(*comm_->ticket_lock());
        run_one(*comm_, o);
        return all;
    }

    /// For Communicator::join(): with it a rank learns from the session that another one has failed and will not join.
    SessionOrigin origin() const { return {&comm_->session(), news_}; }

  private:
    CommunicatorPtr comm_;
    std::size_t news_;
    bool by_session_;                     // not over the communicator
    std::vector<std::uint64_t> numbers_;  // of the session's exchanges
    std::size_t gathered_ = 0;
};

struct Wish {
    int color, key;
};

/// What a rank calls others to. valid: 1, or 0 if it has opened no place. why: the reason, if it was to open one.
struct Call {
    int valid = 0;
    Invitation invitation{};
    char why[180]{};  // cut off, so that a call fits into an exchange
};
static_assert(sizeof(Call) <= 256, "see Session::exchange");

struct Parent {
    tuttiComm& handle;
    CommunicatorPtr comm;
    bool revoked;
};

void refuse_null(const char* function, const char* name, const void* pointer) {
    if (pointer == nullptr) fail(tuttiInvalidArgument, "%s: %s is NULL", function, name);
}

/// The communicator that a new one is made from. Throws if it can't be: suspended, destroyed or finalized.
Parent parent_of(const char* function, tuttiComm_t handle) {
    CommunicatorPtr comm = communicator(handle);
    const tuttiComm::Closed closed = handle->closed.load();
    if (closed == tuttiComm::Closed::finalized) fail(tuttiInvalidUsage, "%s: the communicator was finalized", function);
    return {*handle, std::move(comm), closed == tuttiComm::Closed::revoked};
}

Options options_for(const Parent& parent, const tuttiConfig_t* config) {
    return config == nullptr ? parent.comm->options() : Options::from(config);
}

void refuse_failed(const Parent& parent) {
    const std::optional<Fault> fault = parent.comm->faults().fault();
    if (!fault || parent.revoked) return;
    const std::lock_guard lock(parent.handle.mutex);
    parent.handle.for_newcomers.reset();  // it can't grow any more
    throw Error(fault->code, fault->text);
}

/// All ranks tell each other, by rank, of the places where some are to meet. opens: this rank opens one, as *opened. If
/// it can't, it throws, but tells the others before: they would wait for it.
std::vector<Call> tell_places(SetupExchange& exchange, const Session& session, bool opens,
                              std::unique_ptr<RendezvousPoint>& opened) {
    std::optional<Error> trouble;
    if (opens) try {
            opened = std::make_unique<RendezvousPoint>(session);
        } catch (...) {
            trouble = caught();
        }
    Call mine = opened ? Call{1, opened->invitation()} : Call{};
    if (trouble) std::snprintf(mine.why, sizeof mine.why, "%s", trouble->what());
    std::vector<Call> all;
    try {
        all = exchange.all_gather(mine);
    } catch (...) {  // maybe because another rank has heard of the trouble
        if (!trouble) throw;
    }
    if (trouble) throw Error(*trouble);
    return all;
}

/// The place that `opener` was to open. Throws if it could not.
Identity place_of(const std::vector<Call>& all, Rank opener, const Session& session) {
    const Call& its = all[static_cast<std::size_t>(opener)];
    if (its.valid != 1)
        fail(tuttiRemoteError, "%s could not open a place where the ranks meet: %.*s", session.name(opener).c_str(),
             static_cast<int>(strnlen(its.why, sizeof its.why)), its.why);
    return session.accept(its.invitation);
}

/// The communicator of the ranks that have this rank's color; nullptr if it has none.
CommunicatorPtr split(SetupExchange& exchange, const CommunicatorPtr& parent, Wish mine, const Options& options) {
    exchange.begin();
    const Session& session = parent->session();
    const std::vector<Wish> wishes = exchange.all_gather(mine);
    std::vector<Rank> members;
    for (Rank r = 0; r < parent->ranks(); ++r)
        if (wishes[static_cast<std::size_t>(r)].color == mine.color) members.push_back(r);
    std::ranges::stable_sort(members, {}, [&](Rank r) { return wishes[static_cast<std::size_t>(r)].key; });
    std::unique_ptr<RendezvousPoint> opened;
    const bool opens = mine.color >= 0 && members.size() > 1 && members.front() == parent->rank();
    const std::vector<Call> places = tell_places(exchange, session, opens, opened);
    if (mine.color < 0) return nullptr;
    if (members.size() == 1) return Communicator::join({}, 0, 1, options);
    const Identity ours = place_of(places, members.front(), session);
    const auto place = std::ranges::find(members, parent->rank()) - members.begin();
    CommunicatorPtr comm = Communicator::join(ours, static_cast<Rank>(place), static_cast<int>(members.size()), options,
                                              processes_of(session, members), exchange.origin());
    if (opened) opened->all_have_met();
    return comm;
}

/// The communicator of the ranks that are left. They agree on who that is, meet, and agree on whether all have come; if
/// ranks have died meanwhile, once more without those.
CommunicatorPtr shrink(const CommunicatorPtr& parent, const std::vector<Rank>& excluded, const Options& options) {
    Session& session = parent->session();
    const Rank self = parent->rank();
    const auto agree = [&](std::span<const Rank> out, bool ok) {
        std::vector<Rank> all(out.begin(), out.end());
        for (const Rank r : session.dead()) all.push_back(r);
        // A rank that could not join waits here while the others wait for it in join(), hence twice the time.
        return session.agree(all, ok, Clock::now() + 2 * options.init_timeout);
    };
    for (Agreed agreed = agree(excluded, false);;) {
        const std::vector<Rank> members = all_but(agreed.out, parent->ranks());
        const auto place = std::ranges::find(members, self);
        if (place == members.end())
            fail(tuttiInvalidUsage,
                 "tuttiCommShrink: rank %d takes part, but the other ranks exclude it, or have given it up because its "
                 "host could not be reached (TUTTI_SILENCE_MS)",
                 self);
        CommunicatorPtr comm;
        std::optional<Error> trouble;
        try {
            const Identity where = session.rendezvous(members, agreed);
            comm = Communicator::join(where, static_cast<Rank>(place - members.begin()),
                                      static_cast<int>(members.size()), options, processes_of(session, members));
        } catch (...) {
            trouble = caught();
        }
        Agreed after = agree(agreed.out, comm != nullptr);
        const bool same = after.out == agreed.out;
        if (same && after.ok) return comm;
        if (comm) comm->leave();
        if (same && trouble) throw *trouble;
        if (same) fail(tuttiRemoteError, "tuttiCommShrink: another rank could not join the new communicator");
        agreed = std::move(after);
    }
}

/// The list of excluded ranks. Throws tuttiInvalidArgument if it is invalid.
std::vector<Rank> excluded_by(const int* excluded, int count, int all, Rank self) {
    if (count < 0 || (excluded == nullptr && count > 0))
        fail(tuttiInvalidArgument, "tuttiCommShrink: %d excluded ranks at %p", count,
             static_cast<const void*>(excluded));
    for (int i = 0; i < count; ++i) {
        if (excluded[i] < 0 || excluded[i] >= all)
            fail(tuttiInvalidArgument, "tuttiCommShrink: excluded rank %d is not one of 0 to %d", excluded[i], all - 1);
        if (excluded[i] == self)
            fail(tuttiInvalidArgument, "tuttiCommShrink: rank %d excludes itself; it must not call this function",
                 self);
    }
    return {excluded, excluded + count};
}

/// The first member that has invited newcomers, and the place where it did.
std::pair<Rank, Identity> place_to_grow(SetupExchange& exchange, const Communicator& parent,
                                        const RendezvousPoint* mine) {
    exchange.begin();
    const std::vector<Call> all = exchange.all_gather(mine != nullptr ? Call{1, mine->invitation()} : Call{});
    for (Rank r = 0; r < parent.ranks(); ++r)
        if (const Call& its = all[static_cast<std::size_t>(r)]; its.valid == 1)
            return {r, parent.session().accept(its.invitation)};
    fail(tuttiInvalidUsage, "tuttiCommGrow: none of the ranks has called tuttiCommGetUniqueId before");
}

void suspend(tuttiComm& handle, CommunicatorPtr comm, SetupExchange& exchange) {
    exchange.begin();
    const Session& session = comm->session();
    std::unique_ptr<RendezvousPoint> opened;
    const bool opens = comm->rank() == 0 && comm->ranks() > 1;
    const std::vector<Call> places = tell_places(exchange, session, opens, opened);
    const Identity identity = comm->ranks() > 1 ? place_of(places, 0, session) : Identity();
    InTurn turn(*handle.ticket_lock);
    tuttiComm::Suspended suspended{identity, comm->rank(), comm->ranks(), comm->options(), std::move(opened), nullptr};
    suspended.session = comm->suspend();
    std::lock_guard lock(handle.mutex);
    handle.for_newcomers.reset();  // its key goes with the session's
    handle.suspended = std::move(suspended);
    handle.closed = tuttiComm::Closed::suspended;
    handle.comm.reset();
}

void resume(tuttiComm& handle, const tuttiComm::Suspended& from) {
    CommunicatorPtr comm =
        Communicator::join(from.identity, from.rank, from.ranks, from.options,
                           processes_of(*from.session, all_but({}, from.ranks)), {from.session.get(), 0});
    comm->go_on_with(handle.ticket_lock);
    {
        InTurn turn(*handle.ticket_lock);
        std::lock_guard lock(handle.mutex);
        if (handle.magic.load() == tuttiComm::living) {
            handle.comm = std::move(comm);
            from.session->leave();
            if (from.opened) from.opened->all_have_met();
            handle.suspended.reset();
            handle.closed = tuttiComm::Closed::no;
            return;
        }
    }
    comm->faults().fail(Error(tuttiRemoteError, text("rank %d aborted its communicator", comm->rank())));
    comm->leave();
}

}  // namespace

tuttiResult_t tuttiCommSuspend(tuttiComm_t comm) {
    return grouped([&] {
        const Parent parent = parent_of("tuttiCommSuspend", comm);
        if (parent.revoked) fail(tuttiInvalidUsage, "tuttiCommSuspend: the communicator was revoked");
        refuse_failed(parent);
        const auto exchange = std::make_shared<SetupExchange>(parent.comm, false);
        now_or_then(comm, [=, inner = parent.comm] { suspend(*comm, inner, *exchange); });
    });
}

tuttiResult_t tuttiCommResume(tuttiComm_t comm) {
    return grouped([&] {
        tuttiComm& handle = checked(comm);
        std::optional<tuttiComm::Suspended> from;
        {
            std::lock_guard lock(handle.mutex);
            from = handle.suspended;
        }
        if (!from) fail(tuttiInvalidUsage, "tuttiCommResume: the communicator is not suspended");
        now_or_then(comm, [=] { resume(*comm, *from); });
    });
}

tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t* newcomm, const tuttiConfig_t* config) {
    bool goes_on = false;
    const tuttiResult_t result = grouped([&] {
        if (color < 0 && color != TUTTI_SPLIT_NOCOLOR)
            fail(tuttiInvalidArgument, "tuttiCommSplit: color is %d; 0 or more was expected, or TUTTI_SPLIT_NOCOLOR",
                 color);
        refuse_null("tuttiCommSplit", "newcomm", newcomm);
        const Parent parent = parent_of("tuttiCommSplit", comm);
        refuse_failed(parent);
        const Options options = options_for(parent, config);
        const auto exchange = std::make_shared<SetupExchange>(parent.comm, parent.revoked);
        const auto join = [exchange, comm = parent.comm, mine = Wish{color, key}, options] {
            return split(*exchange, comm, mine, options);
        };
        if (color < 0 && !options.blocking) {
            in_background(parent.handle, join);
            *newcomm = nullptr;
            goes_on = true;
        } else {
            goes_on = make(newcomm, options, join, &parent.handle);
        }
    });
    return or_in_progress(result, goes_on);
}

tuttiResult_t tuttiCommShrink(tuttiComm_t comm, const int* excludeRanks, int excludeCount, tuttiComm_t* newcomm,
                              const tuttiConfig_t* config, int flags) {
    bool goes_on = false;
    const tuttiResult_t result = grouped([&] {
        if (flags != TUTTI_SHRINK_DEFAULT && flags != TUTTI_SHRINK_ABORT)
            fail(tuttiInvalidArgument, "tuttiCommShrink: flags are %d; TUTTI_SHRINK_DEFAULT or _ABORT was expected",
                 flags);
        refuse_null("tuttiCommShrink", "newcomm", newcomm);
        const Parent parent = parent_of("tuttiCommShrink", comm);
        const std::vector<Rank> excluded =
            excluded_by(excludeRanks, excludeCount, parent.comm->ranks(), parent.comm->rank());
        const Options options = options_for(parent, config);
        if (flags == TUTTI_SHRINK_DEFAULT) refuse_failed(parent);
        if (flags == TUTTI_SHRINK_ABORT)
            parent.comm->faults().fail(
                Error(tuttiRemoteError, text("rank %d aborted the communicator to shrink it", parent.comm->rank())));
        goes_on = make(
            newcomm, options, [=, parent = parent.comm] { return shrink(parent, excluded, options); }, &parent.handle);
    });
    return or_in_progress(result, goes_on);
}

tuttiResult_t tuttiCommGetUniqueId(tuttiComm_t comm, tuttiUniqueId* id) {
    return guarded([&] {
        refuse_null("tuttiCommGetUniqueId", "id", id);
        const Parent parent = parent_of("tuttiCommGetUniqueId", comm);
        refuse_failed(parent);
        const Session& session = parent.comm->session();
        auto place = std::make_shared<RendezvousPoint>(session);
        const tuttiUniqueId made = session.accept(place->invitation()).to_unique_id();
        {
            const std::lock_guard lock(parent.handle.mutex);
            if (parent.handle.comm) {                     // its end, from now on, closes the place
                parent.handle.for_newcomers.swap(place);  // newcomers to an earlier place are told
                *id = made;
                return;
            }
        }
        refuse_failed(parent);
        fail(tuttiInvalidUsage, "tuttiCommGetUniqueId: the communicator was destroyed or suspended meanwhile");
    });
}

tuttiResult_t tuttiCommGrow(tuttiComm_t comm, int nranks, const tuttiUniqueId* id, int rank, tuttiComm_t* newcomm,
                            const tuttiConfig_t* config) {
    bool goes_on = false;
    const tuttiResult_t result = grouped([&] {
        if (comm == nullptr) {
            if (newcomm == nullptr || id == nullptr)
                fail(tuttiInvalidArgument, "tuttiCommGrow: %s is NULL, which only a member's may be",
                     newcomm == nullptr ? "newcomm" : "comm and id");
            if (rank < 1 || rank >= nranks)
                fail(tuttiInvalidArgument,
                     "tuttiCommGrow: rank is %d; a newcomer's is 1 or more, since members keep theirs, and below "
                     "nranks, which is %d",
                     rank, nranks);
            const Options options = Options::from(config);
            goes_on = make(newcomm, options, [=, identity = Identity::from(*id)]() -> CommunicatorPtr {
                return Communicator::join(identity, rank, nranks, options);
            });
            return;
        }
        refuse_null("tuttiCommGrow", "newcomm", newcomm);
        const Parent parent = parent_of("tuttiCommGrow", comm);
        refuse_failed(parent);
        const Rank self = parent.comm->rank();
        if (nranks <= parent.comm->ranks())
            fail(tuttiInvalidArgument, "tuttiCommGrow: nranks is %d; more than the %d of comm were expected", nranks,
                 parent.comm->ranks());
        if (rank != -1 && rank != self)
            fail(tuttiInvalidArgument, "tuttiCommGrow: rank is %d; -1 was expected: members keep theirs", rank);
        const Options options = options_for(parent, config);
        const auto exchange = std::make_shared<SetupExchange>(parent.comm, parent.revoked);
        std::shared_ptr<RendezvousPoint> mine;
        {
            const std::lock_guard lock(parent.handle.mutex);
            mine = std::move(parent.handle.for_newcomers);
        }
        goes_on = make(
            newcomm, options,
            [=, parent = parent.comm]() -> CommunicatorPtr {
                const auto [host, place] = place_to_grow(*exchange, *parent, mine.get());
                const std::vector<Rank> members = all_but({}, parent->ranks());
                CommunicatorPtr larger = Communicator::join(
                    place, self, nranks, options, processes_of(parent->session(), members), exchange->origin());
                if (host == self) mine->all_have_met();  // else newcomers to this rank's place are told
                return larger;
            },
            &parent.handle);
    });
    return or_in_progress(result, goes_on);
}

tuttiResult_t tuttiCommRevoke(tuttiComm_t comm, int flags) {
    return guarded([&] {
        if (flags != TUTTI_REVOKE_DEFAULT)
            fail(tuttiInvalidArgument, "tuttiCommRevoke: flags are %d; TUTTI_REVOKE_DEFAULT was expected", flags);
        const CommunicatorPtr c = communicator(comm);
        comm->closed = tuttiComm::Closed::revoked;
        c->faults().fail(Error(tuttiRemoteError, text("rank %d revoked the communicator", c->rank())));
        c->ticket_lock()->call_off();
        InTurn turn(*c->ticket_lock());  // waits until what was under way has ended
    });
}
