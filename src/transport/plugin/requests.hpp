// One connection of a plugin, in one direction, with the requests that are under way on it, in their order.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>

#include "base/os.hpp"
#include "transport/plugin/plugin.hpp"

namespace tutti::plugin {

/// By what connections are made.
struct Connector {
    std::shared_ptr<Plugin> plugin;
    std::shared_ptr<void> context;  // of the communicator
    int device;
};

class Requests {
  public:
    enum class Way { out, in };
    static constexpr unsigned most = abi::most_requests;

    /// One that comes in listens from now on. Throws what the plugin does, as all else here.
    Requests(const Connector& connector, Way way);
    /// Memory first, then the connection, then the listener.
    ~Requests();
    Requests(const Requests&) = delete;

    /// in: by which the other end reaches it. out: what it is aimed at.
    Handle& handle() { return handle_; }

    /// Connects, or accepts, a step further. True once it stands.
    bool open();
    bool is_open() const { return connection_ != nullptr; }

    /// [base, base + size) registered, once.
    void* memory(void* base, std::size_t size);
    /// All of memory, on a GPU, of which fd is the dma-buf; once, too.
    void* gpu_memory(std::span<std::byte> memory, const Fd& fd);

    /// See Plugin::flush().
    void* flush(void* data, std::size_t size, void* memory) { return plugin_->flush(connection_, data, size, memory); }

    /// Queued and under way together: at most `most`.
    unsigned count() const { return count_; }
    void add(void* data, std::size_t size, void* memory);
    /// Hands to the plugin what it has room for. True if anything.
    bool move();
    /// True if the oldest one is done, which is then forgotten; size: of what was received.
    bool take(std::size_t& size);

  private:
    struct Item {
        void* data;
        std::size_t size;
        void* memory;
        void* request;
    };

    const Connector connector_;
    Plugin* const plugin_;
    const Way way_;
    Handle handle_;
    void* listening_ = nullptr;
    void* connection_ = nullptr;
    std::map<void*, void*> memory_;  // by address
    std::array<Item, most> items_;   // a ring
    unsigned first_ = 0, count_ = 0, under_way_ = 0;
};

}  // namespace tutti::plugin
