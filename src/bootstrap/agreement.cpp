#include "bootstrap/agreement.hpp"

#include <algorithm>

#include "base/os.hpp"

namespace tutti::bootstrap {
namespace {

Agree frame(Agree::Step step, std::uint64_t call, const Agreement::Value& value) {
    return {step, false, value.ok, call, value.number, value.out, value.invitation};
}

// The lower half of the numbers is for rendezvous without an agreement: see Communicator::next_rendezvous.
std::uint64_t fresh_number() {
    std::uint64_t number = 0;
    random_bytes(&number, sizeof number);
    return number | std::uint64_t{1} << 63;
}

}  // namespace

void Agreement::begin(const std::vector<Rank>& out, bool ok) {
    ++call_;
    under_way_ = true;
    out_ = {out.begin(), out.end()};
    ok_ = ok;
    proposed_to_ = -1;
    held_.reset();
    chosen_.reset();
    step();
}

Rank Agreement::coordinator() const {
    for (Rank r = 0; r < self_; ++r)
        if (!out_.contains(r) && !port_.is_gone(r)) return r;
    return self_;
}

void Agreement::leave_out_self() {
    is_out_ = true;
    step();
}

void Agreement::step() {
    if (!under_way_) return;
    if (is_out_) return finish({false, fresh_number(), {self_}, {}});
    if (const Rank c = coordinator(); c != self_) {
        if (proposed_to_ != c) propose_to(c);
    } else if (chosen_ || choose()) {
        spread();
    }
}

void Agreement::propose_to(Rank coordinator) {
    proposed_to_ = coordinator;
    port_.reach(coordinator);
    if (held_) port_.send(coordinator, frame(Agree::hold, call_, *held_));
    port_.send(coordinator, {Agree::propose, false, ok_, call_, 0, {out_.begin(), out_.end()}, {}});
}

// Chooses the value to commit; false if proposals are missing. A value that this rank holds may have been committed to
// some member, so it has to be chosen. A value that this rank does not hold can't have been, because a coordinator
// commits only when all remaining members hold it. So otherwise all remaining members have to propose first.
bool Agreement::choose() {
    Value fresh{ok_, fresh_number(), {}, {}};
    std::set<Rank> out = out_;
    bool complete = true;
    for (Rank r = 0; r < ranks_; ++r) {
        if (r == self_) continue;
        if (port_.is_gone(r)) out.insert(r);
        const auto proposal = proposals_.find(r);
        if (out.contains(r)) continue;
        if (proposal == proposals_.end()) {
            port_.reach(r);
            complete = false;
            continue;
        }
        fresh.ok &= proposal->second.ok;
        out.insert(proposal->second.out.begin(), proposal->second.out.end());
    }
    out.erase(self_);
    fresh.out.assign(out.begin(), out.end());
    if (!held_ && !complete) return false;
    if (!held_) {
        if (!fresh.ok || out != out_) fresh.invitation = port_.open_rendezvous(fresh.out);
        held_ = std::move(fresh);
    }
    chosen_ = held_;
    asked_.clear();
    accepted_.clear();
    return true;
}

/// Whether a rank has to hold the chosen value before it can be committed.
bool Agreement::counts(Rank rank) const {
    return rank != self_ && !std::ranges::binary_search(chosen_->out, rank) && !port_.is_gone(rank);
}

void Agreement::spread() {
    bool complete = true;
    for (Rank r = 0; r < ranks_; ++r) {
        if (!counts(r) || accepted_.contains(r)) continue;
        complete = false;
        // Asks again if a rank has proposed since: either it has lost its former coordinator later than this rank, or
        // it has given up the call in which it was asked.
        const auto proposal = proposals_.find(r);
        const std::uint64_t call = proposal == proposals_.end() ? 0 : proposal->second.call;
        if (const auto asked = asked_.find(r); asked != asked_.end() && asked->second >= call) continue;
        asked_[r] = call;
        port_.reach(r);
        port_.send(r, frame(Agree::prepare, call, *chosen_));
    }
    if (!complete) return;
    const Value value = *chosen_;
    for (Rank r = 0; r < ranks_; ++r) {
        if (!counts(r)) continue;
        port_.send(r, {Agree::commit, false, false, 0, value.number, {}, {}});
        std::uint64_t& done = done_[r];
        done = std::max(done, accepted_[r]);
        const auto proposal = proposals_.find(r);
        if (proposal != proposals_.end() && proposal->second.call <= done) proposals_.erase(proposal);
    }
    finish(value);
}

void Agreement::finish(const Value& value) {
    outcome_ = value;
    under_way_ = false;
    held_.reset();
    chosen_.reset();
    for (auto p = proposals_.begin();
         p != proposals_.end();) {  // members that lost the coordinator before its commit came
        if (!p->second.held || p->second.held->number != value.number) {
            ++p;
            continue;
        }
        done_[p->first] = p->second.call;
        port_.send(p->first, {Agree::commit, false, false, 0, value.number, {}, {}});
        p = proposals_.erase(p);
    }
}

void Agreement::received(Rank from, const Agree& m) {
    Value value{m.ok, m.number, m.ranks, m.invitation};
    switch (m.step) {
        case Agree::hold:
            holds_[from] = std::move(value);
            return;
        case Agree::propose: {
            if (port_.is_gone(from)) return port_.send(from, {Agree::exclude, false, false, m.call, 0, {}, {}});
            Proposal p{m.call, m.ok, m.ranks, {}};
            if (auto hold = holds_.extract(from)) p.held = std::move(hold.mapped());
            if (m.call <= done_[from]) return;  // that call ended here before its proposal came
            if (const auto newer = proposals_.find(from); newer != proposals_.end() && m.call < newer->second.call)
                return;                                         // an old proposal, which came late
            if (p.held && p.held->number == outcome_.number) {  // the coordinator died before it could tell all
                done_[from] = m.call;
                return port_.send(from, {Agree::commit, false, false, 0, outcome_.number, {}, {}});
            }
            proposals_[from] = std::move(p);
            return step();
        }
        case Agree::prepare:
            if (outcome_.number == m.number)
                return port_.send(from, {Agree::accept, false, false, 0, m.number, {}, {}});
            if (!under_way_) return;
            if (!(held_ && held_->number == m.number) && !(from == proposed_to_ && m.call == call_)) return;
            held_ = std::move(value);
            return port_.send(from, {Agree::accept, false, false, call_, m.number, {}, {}});
        case Agree::accept:
            if (!under_way_ || !chosen_ || chosen_->number != m.number) return;
            accepted_[from] = m.call;
            return step();
        case Agree::commit:
            if (under_way_ && held_ && held_->number == m.number) finish(*held_);
            return;
        case Agree::exclude:
            if (under_way_ && from == proposed_to_ && m.call == call_) leave_out_self();
            return;
    }
}

void Agreement::lost(Rank rank) {
    proposals_.erase(rank);
    holds_.erase(rank);
    step();
}

std::vector<Rank> Agreement::awaited() const {
    std::vector<Rank> all;
    if (!under_way_) return all;
    if (coordinator() != self_) return {coordinator()};
    for (Rank r = 0; r < ranks_; ++r)
        if (chosen_ ? counts(r) && !accepted_.contains(r)
                    : r != self_ && !out_.contains(r) && !port_.is_gone(r) && !proposals_.contains(r))
            all.push_back(r);
    return all;
}

}  // namespace tutti::bootstrap
