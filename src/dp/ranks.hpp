// The ranks that train together: the layer's communicators, and what ranks tell each other beside reductions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "dp/backend.hpp"
#include "dp/calls.hpp"
#include "dp/owners.hpp"

namespace tutti::dp {

/// Whether a rank accepts what it was given, and why not.
struct Verdict {
    tuttiResult_t code = tuttiSuccess;
    char words[500] = "";

    /// What body throws.
    template <class Body>
    static Verdict of(Body body) {
        Verdict mine;
        mine.code = guarded(body);
        if (mine.code != tuttiSuccess) std::snprintf(mine.words, sizeof mine.words, "%s", last_error());
        return mine;
    }
};

/// Throws the first refusal.
void judge(std::span<const Verdict> all);

/// Owns communicators, split from the caller's: between join() and leave(). Functions that talk to other ranks
/// are collective, block, and are for the callers' threads: comm() and cpu_comm() are for reductions, and jobs may be
/// using them meanwhile. They throw what a communicator throws.
class Ranks {
  public:
    /// Who is there.
    struct Roster {
        int rank = 0, size = 1;
        std::vector<std::uint8_t> gpus;    // by rank: whether it is on one
        std::vector<std::uint64_t> hosts;  // by rank
    };
    /// Before there are communicators: the ranks of comm tell each other who they are, and whether they agree. If one
    /// refuses, all throw its text, and comm is as it was. via: memory on comm's device, where the words travel.
    static Roster meet(tuttiComm_t comm, const BackendPtr& via, bool on_gpu, const Verdict& mine);

    ~Ranks() { leave(); }
    /// users must outlive this, or the next join(). shards: by rank, the same on all of them, if there are any. groups:
    /// whether groups and copies are to have communicators, if there are several.
    void join(tuttiComm_t users, Roster roster, std::vector<Shards> shards = {}, bool groups = false);
    /// Does not abort: other ranks may still read what they are to be told.
    void leave() noexcept;
    /// So that no rank waits for what does not come. Any thread.
    void abort() const noexcept;
    /// Ranks on GPUs: throws what has befallen kernels that were enqueued.
    void check() const;

    int rank() const { return roster_.rank; }
    int size() const { return roster_.size; }
    bool any_gpu() const;
    bool on_one_host() const {
        return std::ranges::adjacent_find(roster_.hosts, std::ranges::not_equal_to{}) == roster_.hosts.end();
    }
    const Shards& shards() const { return shards_[static_cast<std::size_t>(rank())]; }  // this rank's
    const Shards& shards_of(int rank) const { return shards_[static_cast<std::size_t>(rank)]; }
    tuttiComm_t users() const { return users_; }        // the caller's
    tuttiComm_t comm() const { return comm_; }          // for memory where gradients are
    tuttiComm_t cpu_comm() const { return cpu_comm_; }  // for memory of hosts; comm() itself if no rank is on a GPU
    /// As comm(), but of the ranks that have one copy of all shards, in the order of these; comm() itself if all have.
    tuttiComm_t group() const { return group_ != nullptr ? group_ : comm_; }
    /// And of those that have a copy of the same shard, in the order of ranks; nullptr: there is one.
    tuttiComm_t copies() const { return copies_; }

    void barrier() const { must(tuttiBarrier(control_, nullptr)); }
    /// What every rank has to say, by rank. T is plain data, and all say equally much.
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

    /// From one rank to another one, which receives as many bytes.
    void send(std::span<const std::byte> what, int to) const {
        must(tuttiSend(what.data(), what.size(), tuttiUint8, to, control_, nullptr));
    }
    void receive(std::span<std::byte> what, int from) const {
        must(tuttiRecv(what.data(), what.size(), tuttiUint8, from, control_, nullptr));
    }

    /// Of all ranks, place by place.
    void sum(std::span<std::uint64_t> values) const {
        must(tuttiAllReduce(values.data(), values.data(), values.size(), tuttiUint64, tuttiSum, control_, nullptr));
    }

    /// The first rank with the most steps among those that have something; among all if none has.
    int furthest(long long steps, bool has = true) const;

    /// By rank; none if nobody refuses, which takes one byte.
    std::vector<Verdict> verdicts(const Verdict& mine) const;
    /// body throws or not; then all ranks do: tuttiInvalidUsage, with the first one's text.
    template <class Body>
    void all_or_none(Body body) const {
        Verdict mine = Verdict::of(body);
        if (mine.code != tuttiSuccess) mine.code = tuttiInvalidUsage;
        judge(verdicts(mine));
    }

    /// texts[0]: the options of `function`; the others: its items. Throws tuttiInvalidUsage on all ranks if they
    /// differ, with the first difference.
    void agree_on(const char* function, const char* item, std::span<const std::string> texts) const;

  private:
    Roster roster_;
    std::vector<Shards> shards_;  // by rank
    tuttiComm_t users_ = nullptr, comm_ = nullptr, cpu_comm_ = nullptr, group_ = nullptr, copies_ = nullptr;
    tuttiComm_t control_ = nullptr;  // of CPUs, for callers' threads
};

}  // namespace tutti::dp
