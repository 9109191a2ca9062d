// One-sided operations of a rank on a GPU: its board and its peers' boards (kernels/cuda/one_sided.hpp), and the gates
// of its windows.
#pragma once

#include <chrono>
#include <mutex>

#include "gpu/arena.hpp"
#include "gpu/lending.hpp"

namespace tutti::gpu {

/// The place of a rank's part of a window, for ranks of other processes.
struct Exposed {
    Loan loan{};               // of the allocation that it is in
    std::uint64_t offset = 0;  // in bytes, in the allocation
};

/// Owned by its communicator. Any thread may call open() and close(), which mutex_ serialises; the rest changes
/// nothing.
class Boards {
  public:
    /// p2p must join all ranks of `places`, which with ends, control and lender must outlive this.
    Boards(Gpus& gpus, int device, const Ends& ends, Rank self, const Places& places, Control* control, Lender& lender);
    /// To be called after this rank's kernels have ended.
    ~Boards();
    Boards(const Boards&) = delete;

    /// A signal to the peer. The caller makes it a put by setting `to`, `from`, gate and key, and calling share().
    Put signal(Rank peer, int number) const;
    /// Divides the bytes of a put among blocks.
    static void share(Put& put, std::size_t bytes);
    SignalWait wait(std::chrono::milliseconds timeout) const;
    Wanted wanted(Rank peer, int signal, std::uint64_t count) const;

    /// Checks that peers can reach this memory, for a window. If some peers are in other processes it also lends it;
    /// then *permitted is what the caller has to forbid (Lender::forbid), even if this throws. Throws
    /// tuttiInvalidArgument if peers can't reach it.
    Exposed expose(const void* memory, std::size_t bytes, Pointee* permitted) const;

    /// Opens a gate: peers that know the key may put to its window. Throws tuttiUnhandledCudaError.
    void open(std::uint32_t gate, std::uint32_t key);

    /// Closes `count` gates from `first` on, and waits until no peer writes to their windows. False if a peer may still
    /// write at the time-out, or, if the communicator has failed, a moment later.
    bool close(std::uint32_t first, std::uint32_t count, std::chrono::milliseconds timeout) noexcept;

  private:
    struct Answer {
        std::uint32_t never;      // always 0: the abort word of waits that only their time-out ends
        std::uint32_t untouched;  // set by the kernel when no peer touches the windows
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
    bool leaves_process_ = false, leaves_device_ = false;  // some peer is in another process; on another GPU

    std::mutex mutex_;
    void *stream_ = nullptr, *event_ = nullptr;  // for the kernels that change gates; made by the first open()
    Answer* answer_ = nullptr;                   // pinned memory
};

}  // namespace tutti::gpu
