#include "bootstrap/consensus.hpp"

#include <algorithm>
#include <utility>

#include "base/result.hpp"

namespace tutti::bootstrap {

void Consensus::begin(const std::vector<Rank>& out, bool ok) {
    const bool may = monitor_.look([&] {
        if (news_.left_locked()) return false;
        agreed_.reset();
        if (cut_off_) return false;
        cant_.reset();
        return agreeing_ = true;
    });
    if (!may) return;
    agreement_.begin(out, ok);
    note_outcome();
}

/// Hands the outcome to the waiting thread once there is one.
void Consensus::note_outcome() {
    if (agreement_.is_under_way()) return;
    monitor_.change([&] {
        if (!std::exchange(agreeing_, false)) return;
        const Agreement::Value& value = agreement_.outcome();
        agreed_ = {value.ok, value.number, value.out, {}};
        if (value.invitation.size() == sizeof(Invitation))
            std::ranges::copy(value.invitation, agreed_->invitation.emplace().bytes.begin());
    });
}

void Consensus::cancel() {
    agreement_.cancel();
    carrier_.close_rendezvous();
}

std::optional<Agreed> Consensus::wait(Deadline deadline) {
    monitor_.wait(deadline, [&] { return agreed_ || news_.left_locked() || cant_; });
    return monitor_.look([&] {
        if (!agreed_ && !news_.left_locked() && cant_) throw Error(tuttiSystemError, *cant_);
        return agreed_;
    });
}

void Consensus::give_up(const std::string& why, bool for_good) {
    cancel();
    monitor_.change([&] {
        if (!cant_) cant_ = why;
        cut_off_ |= for_good;
    });
}

bool Consensus::is_gone(Rank rank) const {
    return refusing_.contains(rank) || monitor_.look([&] { return news_.is_gone_locked(rank); });
}

void Consensus::reach(Rank rank) {
    reached_.insert(rank);
    carrier_.call(rank);
}

void Consensus::send(Rank to, const Agree& message) {
    Talk& talk = talks_[to];
    Connection* const connection = carrier_.welcomed(to);
    Agree part = message;
    for (std::size_t i = 0; i == 0 || i < message.ranks.size(); i += left_limit) {
        const auto begin = message.ranks.begin() + static_cast<std::ptrdiff_t>(i);
        const std::size_t count = std::min(left_limit, message.ranks.size() - i);
        part.ranks.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
        part.more = i + count < message.ranks.size();
        part.serial = ++talk.said;
        talk.kept.push_back(part);
        if (connection != nullptr) say(*connection, talk, part);
    }
    if (connection == nullptr) reach(to);
}

void Consensus::say(Connection& connection, const Talk& talk, Agree& message) {
    message.heard = talk.heard;
    connection.send(message);
}

void Consensus::say_again(Connection& connection) {
    const auto found = talks_.find(connection.peer);
    if (found == talks_.end()) return;
    for (Agree& message : found->second.kept) say(connection, found->second, message);
}

void Consensus::broken(Rank peer) {
    const auto found = talks_.find(peer);
    if (found == talks_.end() || found->second.kept.empty() || is_gone(peer)) return;
    if (Connection* const other = carrier_.welcomed(peer)) return say_again(*other);
    reach(peer);
}

void Consensus::received(Rank peer, Agree& agree) {
    if (peer < 0 || std::ranges::any_of(agree.ranks, [&](Rank r) { return r >= ranks_; })) return;
    Talk& talk = talks_[peer];
    std::erase_if(talk.kept, [&](const Agree& kept) { return kept.serial <= agree.heard; });
    if (agree.serial <= talk.heard) return;
    talk.heard = agree.serial;
    std::vector<Rank>& list = talk.partial;
    if (list.size() + agree.ranks.size() > static_cast<std::size_t>(ranks_))
        return void(list.clear());  // longer than any list can be
    list.insert(list.end(), agree.ranks.begin(), agree.ranks.end());
    if (agree.more) return;
    agree.ranks = std::exchange(list, {});
    agreement_.received(peer, agree);
    note_outcome();
}

void Consensus::lost(Rank rank) {
    if (const auto found = talks_.find(rank); found != talks_.end())
        found->second.kept.clear(), found->second.partial.clear();
    agreement_.lost(rank);
    note_outcome();
}

void Consensus::disown() {
    agreement_.leave_out_self();
    note_outcome();
}

void Consensus::refused(Rank rank) {
    refusing_.insert(rank);
    lost(rank);
}

}  // namespace tutti::bootstrap
