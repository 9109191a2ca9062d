#include "transport/net/boards.hpp"

namespace tutti::net {

void Boards::tell(const RankPage& mine) {
    const std::uint64_t sequence = mine.sequence.load(std::memory_order_acquire);
    if (sequence == told_ || due_) return;
    mine_.sequence = told_ = sequence;
    for (int i = 0; i < board_entries; ++i) mine_.calls[i] = mine.board[i].get();
    due_ = true;
}

void Boards::arrived() {
    for (int i = 0; i < board_entries; ++i) theirs_.board[i].set(arriving_.calls[i]);
    theirs_.sequence.store(arriving_.sequence, std::memory_order_release);
}

void Boards::note(const Call& call) {
    theirs_.board[call.sequence % board_entries].set(call);
    theirs_.sequence.store(std::uint64_t{call.sequence} + 1, std::memory_order_release);
}

}  // namespace tutti::net
