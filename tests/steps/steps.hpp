// One rank's part of random operations, the same on all ranks, each checked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data.hpp"
#include "servers.hpp"
#include "tutti/dp.h"

namespace tutti::steps {

class Steps {
  public:
    /// most_bytes: of a rank's row.
    Steps(World world, std::uint64_t seed, std::size_t most_bytes);
    ~Steps();
    Steps(const Steps&) = delete;

    static std::vector<std::string> kinds();

    /// Throws Failure or Wrong. focus: what most steps are, or "all".
    void run(std::uint64_t number, const std::string& focus);
    /// A step of one kind.
    void run_only(std::uint64_t number, const std::string& kind);

    /// What the last step was.
    const std::string& doing() const { return doing_; }
    /// The first failed rank that the library names for the communicator at which the last step failed, by its number
    /// in `world`; -1: none. -2: that communicator is the library's own.
    int named_there() const;
    /// Those of the communicator at which the last step failed, by their numbers in `world`; empty: all.
    std::vector<int> members_there() const { return in_part() ? members_ : std::vector<int>(); }

    /// Ends what the failed step has left: communicators, layers, streams, windows.
    void clean_up();
    /// Whether work that the failed step has enqueued may be under way until clean_up().
    bool works_on() const { return doing_ == "streams" || servers_ != nullptr; }
    Memory& memory() { return memory_; }

  private:
    struct Kind;
    static const std::vector<Kind>& table();

    void collectives();
    void rounds();
    void pairs();
    void chain();
    void puts();
    void groups();
    void streams();
    void split();
    void parts();
    void make_part();
    void leave_part();
    bool in_part() const { return part_.comm != nullptr && !beside_part_; }
    void run(std::uint64_t number, const Kind& kind);
    void suspend();
    void dp();
    void servers();
    void arrivals();
    void train(tuttiDpMode_t mode, std::size_t rounds);
    void backward(const std::vector<std::size_t>& sizes, std::uint64_t salt, bool add, bool gathered);

    void do_collective(const World& world, std::uint64_t salt);
    std::vector<Call> sends_and_receives(std::uint64_t salt);
    void open_window();
    Dice all(std::uint64_t salt) const { return Dice{seed_, number_, salt}; }
    std::uint64_t key(std::uint64_t salt) const { return Dice{seed_, number_, salt, 5}.next() >> 8; }

    World world_;
    std::uint64_t seed_;
    std::size_t most_bytes_;
    Memory memory_;
    Dice own_;
    std::uint64_t number_ = 0;
    std::string doing_;

    World part_;
    bool beside_part_ = false;  // part_ is there, but the step is at work in world_
    std::vector<int> members_;  // of part_, by their rank there
    tuttiStream_t streams_[2] = {};
    tuttiDp_t dp_ = nullptr;
    std::unique_ptr<Servers> servers_;
    std::vector<std::vector<float>> weights_;  // dp_ uses them
    tuttiWindow_t window_ = nullptr;
    unsigned char* shown_ = nullptr;  // the window's memory
};

}  // namespace tutti::steps
