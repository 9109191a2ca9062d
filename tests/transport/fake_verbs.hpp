// Mock adapters: what libibverbs does with reliable connections, for writes with and without
// immediate, with keys, ranges and states checked as hardware would; and its faults, on demand.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "transport/verbs/library.hpp"

namespace tutti::harness {

/// A number that a test sets while threads of the library read it.
template <typename T>
class Knob {
  public:
    Knob(T initial) : value_(initial) {}  // NOLINT(google-explicit-constructor): it is to be like a T
    Knob(const Knob& other) : value_(other.value_.load()) {}
    Knob& operator=(const Knob& other) {
        value_ = other.value_.load();
        return *this;
    }
    operator T() const { return value_; }  // NOLINT(google-explicit-constructor): likewise
    T operator--() { return --value_; }

  private:
    std::atomic<T> value_;
};

/// What the adapters do next.
struct FakeVerbs {
    Knob<int> adapters = 2;
    Knob<ibv_port_state> state = IBV_PORT_ACTIVE;
    Knob<bool> infiniband = false;
    Knob<unsigned> inline_bytes = 256;      // that fit into a request; queue pairs with more are refused
    Knob<int> pairs = 1000;                 // that an adapter has
    Knob<int> registrations = 1000000;      // before the kernel refuses
    Knob<int> gpu_registrations = 1000000;  // likewise, of GPU memory
    Knob<bool> late = false;                // what is written to GPU memory gets there with land() only
    Knob<int> frames = 1000000;             // writes with immediate before the network is cut
    Knob<int> cuts = 0, cut_every = 0;      // so many connections break, each after about so many more of them
    Knob<int> refusals = 0;                 // connections that are not made: no way to the peer is found
    Knob<bool> apart = false;               // requests take their time, and connections overtake each other
    Knob<bool> reads_wait = false;          // apart: reads of peers' memory are not carried out
    Knob<bool> misplace = false;            // the peer writes immediates of its own making
    Knob<std::uint8_t> address = 3;         // ports are 10.1.2.address
    Knob<std::uint16_t> pkey = 0x8001;      // entry 1 of the table of partition keys; entry 2 is empty
    std::array<Knob<unsigned>, 8> lanes = {2, 2, 2, 2, 2, 2, 2, 2};  // active_width of ports with 25 Gbit/s a lane
    std::string sys;  // a directory with one of each adapter's name; empty: there is none
};
FakeVerbs& fake_verbs();

/// Forgets what a test has set.
struct FakeVerbsReset {
    FakeVerbsReset() { fake_verbs() = {}; }
    ~FakeVerbsReset() { fake_verbs() = {}; }
};

const verbs::Library* fake_library();
/// That of older machines, which knows no GPU memory.
const verbs::Library* old_fake_library();

/// What a queue pair was told before it could send.
struct FakeConnection {
    int adapter;
    std::uint16_t pkey_index;
    std::uint8_t traffic_class, service_level, timeout, retries;
    friend bool operator==(const FakeConnection&, const FakeConnection&) = default;
};
/// Of those that there are and that can send.
std::vector<FakeConnection> fake_connections();
/// Whether all keys of regions that hold that byte let adapters write in any order; there is one.
bool relaxed(const void* memory);

/// Whether there is a key that lets peers write to all of that.
bool peers_can_write(const void* memory, std::size_t bytes);
/// A key of a region that holds that byte, whatever it allows; 0: no adapter knows it.
std::uint32_t key_to(const void* memory);

/// How many bytes peers have written to, or read from, the regions that hold that byte.
std::size_t written_by_peers(const void* memory);
std::size_t read_by_peers(const void* memory);
/// How many bytes their own adapter has read from peers to the regions that hold that byte.
std::size_t read_from_peers(const void* memory);
/// How many reads are posted and were not carried out (FakeVerbs::apart).
std::size_t reads_under_way();

/// What FakeVerbs::late has kept back is there: the flush of a GPU.
void land();

/// An event of each adapter, or of one, and nothing else: what is sent still arrives. Those about queue pairs and
/// completion queues are told of all that the adapter has.
void tell(ibv_event_type what, int adapter = -1);

/// What the adapters have done and hold, by all tests so far.
struct FakeVerbsTally {
    int writes[2] = {};  // with immediate, by fake0 and fake1
    std::size_t registered = 0;
    int sent_from_host = 0, sent_from_gpu = 0;  // bodies of messages
    int sent_to_host = 0, sent_to_gpu = 0;
    int refused = 0;  // writes to what the peer does not let be written
};
FakeVerbsTally fake_verbs_tally();

}  // namespace tutti::harness
