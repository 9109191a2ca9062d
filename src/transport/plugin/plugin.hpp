// A network plugin as the rest of this room sees it, whatever version of the interface it was written for. The contract
// of its functions:
//
// - connect() and accept() never wait. If they return nullptr, call them again, with the same handle.
// - send() and receive() return nullptr if the plugin has no room. Call them again later.
// - Messages of a connection arrive in the order in which they were sent, each in the next buffer that was given to
//   receive(). At most abi::most_requests requests may be under way on a connection.
// - One thread at a time may use a connection. Different threads may use different connections.
// - No call has a time limit: a plugin that blocks in a call blocks its caller.
//
// A call that fails throws Error(tuttiSystemError), whose text names the plugin's file and the call.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "transport/plugin/abi.hpp"

namespace tutti::plugin {

/// The address of a listener: listen() fills it, and the peer passes it to connect(). The plugin keeps state in it
/// while it connects, so it must not move meanwhile.
struct alignas(64) Handle {
    std::array<std::byte, abi::handle_bytes> bytes{};
};

/// The properties of a device.
struct Device {
    int number = 0;  // as listen() and connect() take it
    std::string name;
    bool host_memory = false;    // supports host memory
    bool gpu_memory = false;     // supports a GPU's memory, as a dma-buf
    bool needs_flush = false;    // what arrives in a GPU's memory must be flushed, whatever the GPU
    int speed = 0;               // Mbit/s
    int most_connections = 0;    // 0 or less if it sets no bound
    std::size_t most_bytes = 0;  // of a message
};

/// A loaded plugin. Shared by the PluginNet and all connections. Any thread may ask for devices and contexts.
class Plugin {
  public:
    virtual ~Plugin() = default;

    /// "/opt/lib/libnccl-net-x.so", for error texts.
    virtual const std::string& file() const = 0;
    virtual std::string name() const = 0;
    virtual int version() const = 0;  // of the interface, for the log

    /// How many devices there are, and the properties of one: 0 <= number < devices().
    virtual int devices() = 0;
    virtual Device device(int number) = 0;

    /// Makes a context; each communicator has its own, so that a failure in one does not affect the others. It is
    /// finalized with its last owner. nullptr if the version of the interface has no contexts.
    virtual std::shared_ptr<void> context() = 0;

    /// Returns a listener, and its address in out.
    virtual void* listen(void* context, int device, Handle& out) = 0;
    /// A step towards a connection for sending (connect) or receiving (accept). nullptr if it does not stand yet.
    virtual void* connect(void* context, int device, Handle& to) = 0;
    virtual void* accept(void* listening) = 0;

    /// Registers [data, data + size) for sends or receives on this connection, until forget_memory(). Returns the
    /// handle that send(), receive() and flush() take as `memory`.
    virtual void* register_memory(void* connection, void* data, std::size_t size) = 0;
    /// The same for a GPU's memory. data: the address for kernels; fd: the dma-buf whose first byte is there. Only if
    /// can_take_gpus().
    virtual void* register_gpu_memory(void* connection, void* data, std::size_t size, int fd) = 0;
    virtual bool can_take_gpus() const = 0;
    virtual void forget_memory(void* connection, void* memory) = 0;

    /// Start a request; is_done() is then to be called until it returns true. The data must lie in `memory`. nullptr if
    /// the plugin has no room.
    virtual void* send(void* connection, void* data, std::size_t size, void* memory) = 0;
    virtual void* receive(void* connection, void* data, std::size_t size, void* memory) = 0;
    /// Starts a request that makes data received into a GPU's memory visible to kernels once it is done. nullptr if it
    /// is visible at once. Only if can_flush().
    virtual void* flush(void* connection, void* data, std::size_t size, void* memory) = 0;
    virtual bool can_flush() const = 0;
    /// Whether the request is done; if so, the plugin has freed it, and size is set to the bytes that were received.
    virtual bool is_done(void* request, std::size_t& size) = 0;

    // Before a connection is closed, its requests should be done and its memory forgotten. These functions do not
    // throw: they log failures.
    virtual void close_send(void* connection) = 0;
    virtual void close_receive(void* connection) = 0;
    virtual void close_listen(void* listening) = 0;
};

/// Loads the first plugin in `value` that works. value: as NCCL_NET_PLUGIN, a list separated by commas of paths, names
/// x of libnccl-net-x.so, or STATIC_PLUGIN for the program itself. Throws tuttiSystemError that names every file that
/// was tried and why it does not serve. The file is never unloaded: it may have started threads.
std::shared_ptr<Plugin> load(const std::string& value);

/// Initializes the plugin that `library`, a handle of dlopen(), exports, in the newest version of the interface that it
/// has. file: for texts. Throws tuttiSystemError.
std::shared_ptr<Plugin> adapt(void* library, const std::string& file);

}  // namespace tutti::plugin
