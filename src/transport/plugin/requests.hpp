// One connection of a plugin, in one direction, with its requests in order.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>

#include "base/os.hpp"
#include "transport/plugin/plugin.hpp"

namespace tutti::plugin {

/// What connections are made with.
struct Connector {
    std::shared_ptr<Plugin> plugin;
    std::shared_ptr<void> context;  // the communicator's; nullptr if the plugin has no contexts
    int device;
};

/// Owned by a Frames or an Endpoint. One thread at a time may use it.
class Requests {
  public:
    enum class Way { out, in };
    static constexpr unsigned most = abi::most_requests;

    /// Way::in listens from now on. All functions throw what the plugin throws.
    Requests(const Connector& connector, Way way);
    /// Forgets the memory, then closes the connection, then the listener.
    ~Requests();
    Requests(const Requests&) = delete;

    /// in: this end's address, for the peer. out: the peer's, to be set before open().
    Handle& handle() { return handle_; }

    /// A step of connecting (out) or accepting (in). True once the connection stands.
    bool open();
    bool is_open() const { return connection_ != nullptr; }

    /// Returns the plugin's handle of [base, base + size), which the first call for base registers.
    void* memory(void* base, std::size_t size);
    /// The same for a GPU's memory; fd: the dma-buf of all of it.
    void* gpu_memory(std::span<std::byte> memory, const Fd& fd);

    /// See Plugin::flush().
    void* flush(void* data, std::size_t size, void* memory) { return plugin_->flush(connection_, data, size, memory); }

    /// Requests that are queued or under way: at most `most`.
    unsigned count() const { return count_; }
    /// Queues a send or a receive. memory: the plugin's handle of the memory that data lies in.
    void add(void* data, std::size_t size, void* memory);
    /// Hands queued requests to the plugin, as many as it takes. True if it took any.
    bool move();
    /// Whether the oldest request is done; removes it if so. size: the bytes that were received.
    bool take(std::size_t& size);

  private:
    struct Item {
        void* data;
        std::size_t size;
        void* memory;
        void* request;  // the plugin's; nullptr while queued
    };

    const Connector connector_;
    Plugin* const plugin_;
    const Way way_;
    Handle handle_;
    void* listening_ = nullptr;      // nullptr for Way::out
    void* connection_ = nullptr;     // nullptr until it stands
    std::map<void*, void*> memory_;  // the plugin's handles, by address
    std::array<Item, most> items_;   // a ring: count_ from first_ on, of which the first under_way_ are with the plugin
    unsigned first_ = 0, count_ = 0, under_way_ = 0;
};

}  // namespace tutti::plugin
