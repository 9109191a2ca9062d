// What a rank on a GPU needs for one-sided operations: its board and its peers' (kernels/cuda/one_sided.hpp), and their
// memory in windows.
#pragma once

#include <chrono>
#include <mutex>

#include "gpu/arena.hpp"
#include "gpu/lending.hpp"

namespace tutti::gpu {

/// Where a rank's part of a window lies, for ranks of other processes.
struct Exposed {
    Loan loan{};               // of the allocation
    std::uint64_t offset = 0;  // into it
};

class Boards {
  public:
    /// All ranks of `places` are joined by p2p. ends, control and lender outlive this.
    Boards(Gpus& gpus, int device, const Ends& ends, Rank self, const Places& places, Control* control, Lender& lender);
    /// After the kernels of this rank have ended.
    ~Boards();
    Boards(const Boards&) = delete;

    /// A signal to the peer. It is also a put once `to`, `from`, gate and key are set, and share() was called.
    Put signal(Rank peer, int number) const;
    static void share(Put& put, std::size_t bytes);  // among blocks
    SignalWait wait(std::chrono::milliseconds timeout) const;
    Wanted wanted(Rank peer, int signal, std::uint64_t count) const;

    /// Memory that peers are to put to. Where some are in other processes, *permitted has become lendable, also if this
    /// throws: tuttiInvalidArgument if they can't.
    Exposed expose(const void* memory, std::size_t bytes, Pointee* permitted) const;

    /// From now on peers that know the key may put to the window with this gate.
    void open(std::uint32_t gate, std::uint32_t key);

    /// Closes gates. False if somebody may be writing to windows of this rank for longer than the time-out, or, where
    /// the communicator has failed, than a moment. From any thread.
    bool close(std::uint32_t first, std::uint32_t count, std::chrono::milliseconds timeout) noexcept;

  private:
    struct Answer {
        std::uint32_t never;  // 0: a wait that heeds this word ends by its time-out alone
        std::uint32_t untouched;
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
    bool leaves_process_ = false, leaves_device_ = false;  // some peer is in another process, on another GPU

    std::mutex mutex_;
    void *stream_ = nullptr, *event_ = nullptr;  // of gates; made when the first is opened
    Answer* answer_ = nullptr;
};

}  // namespace tutti::gpu
