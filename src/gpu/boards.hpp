// One-sided operations of a rank on a GPU: its own and its peers' boards (kernels/cuda/one_sided.hpp), and the windows
// that it opens to its peers.
#pragma once

#include <chrono>
#include <mutex>

#include "gpu/arena.hpp"
#include "gpu/lending.hpp"

namespace tutti::gpu {

/// Names a rank's part of a window to ranks of other processes.
struct Exposed {
    Loan loan{};               // of the allocation it lies in
    std::uint64_t offset = 0;  // in bytes, into the allocation
};

/// Owned by GpuSide. Any thread may call close(); one thread at a time the rest. mutex_ guards what follows it.
class Boards {
  public:
    /// p2p must join all ranks of `places`. ends, places, control and lender outlive this.
    Boards(Gpus& gpus, int device, const Ends& ends, Rank self, const Places& places, Control* control, Lender& lender);
    /// Only after this rank's kernels have ended.
    ~Boards();
    Boards(const Boards&) = delete;

    /// A signal to the peer. The caller makes a put of it by setting `to`, `from`, `gate` and `key`, and calling
    /// share().
    Put signal(Rank peer, int number) const;
    static void share(Put& put, std::size_t bytes);  // sets bytes, and the number of blocks for them
    SignalWait wait(std::chrono::milliseconds timeout) const;
    Wanted wanted(Rank peer, int signal, std::uint64_t count) const;
    /// This rank's part of a meeting. The caller sets signature, call and begins.
    Meeting meeting(std::chrono::milliseconds timeout) const;

    /// Checks that peers can put to the memory, and lends it if some are in other processes. *permitted is then what
    /// was permitted to be lent, for the caller to forbid later, also if this throws. Throws tuttiInvalidArgument if
    /// peers can't reach the memory. here: all GPUs of this process reach it.
    Exposed expose(const void* memory, std::size_t bytes, bool here, Pointee* permitted) const;

    /// Opens a gate: peers that know the key may now use the window that has it.
    void open(std::uint32_t gate, std::uint32_t key);

    /// Closes gates first to first + count - 1, and waits until no peer uses windows of this rank: for the time-out, or
    /// 0.2 s if the communicator has failed. False if a peer may still be using one. Any thread.
    bool close(std::uint32_t first, std::uint32_t count, std::chrono::milliseconds timeout) noexcept;

  private:
    struct Answer {
        std::uint32_t never;      // always 0: the abort word of waits that only their time-out may end
        std::uint32_t untouched;  // set to 1 by the kernel once no peer uses a window
    };
    Board* board_of(Rank r) const;
    bool change(std::uint32_t first, std::uint32_t count, std::uint32_t key, const std::uint32_t* abort,
                std::chrono::milliseconds timeout);

    Gpus& gpus_;
    const int device_;
    const Ends& ends_;
    const Rank self_;
    const Places& places_;
    Control* const control_;
    Lender& lender_;
    bool leaves_process_ = false, leaves_device_ = false;  // a peer is in another process; here, on another GPU

    std::mutex mutex_;
    void *stream_ = nullptr, *event_ = nullptr;  // for kernels that change gates; made by the first open()
    Answer* answer_ = nullptr;                   // pinned host memory
};

}  // namespace tutti::gpu
