// The engine of a rank, as the other rooms know it; net/engine.hpp is the one that there is.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/result.hpp"
#include "bootstrap/address.hpp"

namespace tutti {

/// Most interfaces that a rank listens on.
inline constexpr std::size_t most_rails = 4;

struct Neighbourhood;

/// Moves the messages of links over networks, where the two ends share no memory. A thread of the rank drives it by
/// poll() while it waits; otherwise it goes on in the background. One for each rank, which its Neighbourhood and links
/// share. One thread at a time, except where a function says otherwise.
class Engine {
  public:
    virtual ~Engine() = default;

    /// Runs part(0) to part(count - 1), each once, on the calling thread and on idle ones, several at once. Returns
    /// when all have returned. Throws what one of them threw.
    using Spread = std::function<void(std::size_t count, const std::function<void(std::size_t)>& part)>;
    /// Lets poll() divide its work among threads. Call it before start().
    virtual void spread_by(Spread spread) = 0;

    /// Where it listens, for this rank's endpoint info. It listens from its construction, and accepts after start().
    virtual std::array<bootstrap::Address, most_rails> addresses() const = 0;
    /// timeout: of operations. A host that is silent for half of it, or for config().silence_ms, is given up.
    virtual void start(const Neighbourhood& from, std::chrono::milliseconds timeout) = 0;

    /// Moves what can be moved without waiting. True if anything moved. Throws tuttiRemoteError that names rank, host
    /// and addresses once a peer can't be reached any more.
    virtual bool poll() = 0;

    /// Whether something that this rank sent is still in its process, not yet handed to the kernel or the adapter.
    virtual bool pending() = 0;

    /// The caller stops polling. What it has sent still goes out. asleep: it is about to sleep, and must be woken when
    /// something arrives. True if anything moved meanwhile.
    virtual bool rest(bool asleep) = 0;

    /// Kernels begin, or cease, to use the FIFOs of its links. Kernels can't ring, and no thread of the rank polls for
    /// them, so the engine polls by itself meanwhile. Called in pairs, from any thread.
    virtual void serve(bool begins) = 0;
    /// The same where the stream does not say when kernels end: kernels were launched, and the engine polls until the
    /// function that ask() was given returns false.
    virtual void launched() = 0;
    /// run: whether launched kernels still run. Called on the engine's threads, one at a time; must not wait. nullptr:
    /// it is not called any more.
    virtual void ask(std::function<bool()> run) = 0;
    /// Has `listener` called on the service thread, once, with the error that poll() would throw. nullptr: it is not
    /// called any more.
    virtual void on_loss(std::function<void(const Error&)> listener) = 0;
    /// Lends this rank's part of a window to peers on other hosts: see LentMemory. Where adapters take the memory,
    /// those of peers write it.
    virtual void lend(std::uint32_t gate, std::uint32_t key, std::span<std::byte> memory) = 0;
    /// The rank gives up. When this has returned no peer writes to its user's buffers.
    virtual void withdraw() = 0;
};

/// An engine that listens at these addresses. addresses: at least one, of port 0; those beyond most_rails are ignored.
/// Throws tuttiSystemError.
std::shared_ptr<Engine> open_engine(std::span<const bootstrap::Address> addresses);

}  // namespace tutti
