// The ranks that train together: the layer's communicators, and the control messages that ranks exchange beside
// reductions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dp/backend.hpp"
#include "dp/calls.hpp"
#include "dp/owners.hpp"

namespace tutti::dp {

/// Whether a rank accepts a call, and the error text if not. Plain data, to be sent to other ranks.
struct Verdict {
    tuttiResult_t code = tuttiSuccess;
    char words[500] = "";

    /// Runs body, and returns the error that it throws.
    template <class Body>
    static Verdict of(Body body) {
        Verdict mine;
        mine.code = guarded(body);
        if (mine.code != tuttiSuccess) std::snprintf(mine.words, sizeof mine.words, "%s", last_error());
        return mine;
    }
};

/// Throws the refusal of the first rank that has one.
void judge(std::span<const Verdict> all);

/// Owned by the Engine, or by the constructor of a Node. From join() to leave() it owns communicators that were split
/// from the caller's. Functions that exchange data with other ranks block and, except for send() and receive(), are
/// collective. They are for the caller's thread and use a communicator of their own, because jobs may be using comm()
/// and cpu_comm() meanwhile. They throw the communicator's error.
class Ranks {
  public:
    struct Roster {
        int rank = 0, size = 1;            // this rank; the number of ranks
        std::vector<std::uint8_t> gpus;    // by rank: whether it is on a GPU
        std::vector<std::uint64_t> hosts;  // by rank: the id of its host
        std::unique_ptr<tuttiComm, decltype(&tuttiCommDestroy)> control{nullptr, tuttiCommDestroy};  // for join()
    };
    /// Exchanges the roster and the verdicts of comm's ranks, before join(). If one rank refuses, all throw its error,
    /// and comm can still be used. Collective. Runs no kernels: a rank that frees memory in abort() may wait for them.
    static Roster meet(tuttiComm_t comm, bool on_gpu, const Verdict& mine);

    ~Ranks() { leave(); }
    /// Makes the communicators. Collective. users must outlive this, or the next join(). shards: by rank, the same on
    /// all ranks; empty if nothing is sharded. groups: also make group() and copies(), if shards have several copies.
    /// gathers: also make gathers() and gathers_in_group().
    void join(tuttiComm_t users, Roster roster, std::vector<Shards> shards = {}, bool groups = false,
              bool gathers = false);
    /// Destroys the communicators. Does not abort them: other ranks may still be reading their last messages.
    void leave() noexcept;
    /// Aborts the communicators, so that no rank waits for this one for ever. Any thread.
    void abort() const noexcept;
    /// Throws the error of a kernel that was enqueued before, if this rank is on a GPU.
    void check() const;

    int rank() const { return roster_.rank; }
    int size() const { return roster_.size; }
    bool any_gpu() const;
    /// Whether all ranks are on the same host.
    bool on_one_host() const {
        return std::ranges::adjacent_find(roster_.hosts, std::ranges::not_equal_to{}) == roster_.hosts.end();
    }
    const Shards& shards() const { return shards_[static_cast<std::size_t>(rank())]; }  // this rank's
    const Shards& shards_of(int rank) const { return shards_[static_cast<std::size_t>(rank)]; }
    tuttiComm_t users() const { return users_; }        // the caller's
    tuttiComm_t comm() const { return comm_; }          // for the memory where gradients are
    tuttiComm_t cpu_comm() const { return cpu_comm_; }  // for host memory; comm() itself if no rank is on a GPU
    /// As comm(), for this rank's shard group, in the order of the shards; comm() itself if there is one group.
    tuttiComm_t group() const { return group_ != nullptr ? group_ : comm_; }
    /// As comm(), for the ranks that have a copy of this rank's shard, in the order of ranks; nullptr if there is one.
    tuttiComm_t copies() const { return copies_; }
    // As comm() and group(), for sending values: of their own with config.separateGathers, otherwise the same.
    tuttiComm_t gathers() const { return gathers_ != nullptr ? gathers_ : comm_; }
    tuttiComm_t gathers_in_group() const {
        return group_gathers_ != nullptr ? group_gathers_ : group_ != nullptr ? group_ : gathers();
    }

    void barrier() const { must(tuttiBarrier(control_, nullptr)); }
    /// All ranks' elements, in the order of ranks. T is plain data, and all ranks give equally many.
    template <class T>
    std::vector<T> gather(std::span<const T> mine) const {
        std::vector<T> all(mine.size() * static_cast<std::size_t>(size()));
        must(tuttiAllGather(mine.data(), all.data(), mine.size_bytes(), tuttiUint8, control_, nullptr));
        return all;
    }
    template <class T>
    std::vector<T> exchange(const T& mine) const {
        return gather(std::span<const T>(&mine, 1));
    }
    template <class T>
    void broadcast(std::span<T> values, int root) const {
        must(tuttiBroadcast(values.data(), values.data(), values.size_bytes(), tuttiUint8, root, control_, nullptr));
    }
    void broadcast(std::string& text, int root) const;
    void maximum(std::span<std::uint8_t> values) const {
        must(tuttiAllReduce(values.data(), values.data(), values.size(), tuttiUint8, tuttiMax, control_, nullptr));
    }

    /// A message to rank `to`, which calls receive() with as many bytes.
    void send(std::span<const std::byte> what, int to) const {
        must(tuttiSend(what.data(), what.size(), tuttiUint8, to, control_, nullptr));
    }
    void receive(std::span<std::byte> what, int from) const {
        must(tuttiRecv(what.data(), what.size(), tuttiUint8, from, control_, nullptr));
    }
    /// Sums each element over all ranks, in place.
    void sum(std::span<std::uint64_t> values) const {
        must(tuttiAllReduce(values.data(), values.data(), values.size(), tuttiUint64, tuttiSum, control_, nullptr));
    }

    /// The first rank with the most steps among those that pass has = true; among all ranks if none does.
    int furthest(long long steps, bool has = true) const;

    /// All verdicts, by rank; empty if no rank refuses, which costs an exchange of one byte.
    std::vector<Verdict> verdicts(const Verdict& mine) const;
    /// Runs body. If it throws on any rank, all ranks throw tuttiInvalidUsage with the text of the first such rank.
    template <class Body>
    void all_or_none(Body body) const {
        Verdict mine = Verdict::of(body);
        if (mine.code != tuttiSuccess) mine.code = tuttiInvalidUsage;
        judge(verdicts(mine));
    }

    /// Compares texts over ranks: texts[0] describes the options of `function`, the others its items. If they differ,
    /// throws tuttiInvalidUsage on all ranks, with the first difference.
    void agree_on(const char* function, const char* item, std::span<const std::string> texts) const;

  private:
    Roster roster_;
    std::vector<Shards> shards_;  // by rank
    /// All communicators of comm()'s memory.
    auto of_memory() const { return std::array{comm_, group_, copies_, gathers_, group_gathers_}; }

    tuttiComm_t users_ = nullptr, comm_ = nullptr, cpu_comm_ = nullptr;
    tuttiComm_t group_ = nullptr, copies_ = nullptr, gathers_ = nullptr, group_gathers_ = nullptr;
    tuttiComm_t control_ = nullptr;  // on CPUs, for the caller's thread
};

}  // namespace tutti::dp
