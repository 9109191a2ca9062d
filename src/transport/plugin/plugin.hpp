// A network plugin as the rest of this room sees it, whatever version of the interface it was written for. What its
// functions promise:
//
// - connect() and accept() never wait: they say "not yet" and want to be called again, with the same handle.
// - send() and receive() may have no room: then they are to be called again.
// - Messages of a connection arrive in the order in which they were sent, each in the next place that was given to
//   receive(). At most abi::most_requests are under way on a connection.
// - A connection is used by one thread at a time; different ones by different threads.
// - Nothing returns before the plugin wants it to: a plugin that blocks in a call blocks its caller.
//
// A call that fails throws Error(tuttiSystemError), whose text names the plugin's file and the call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/plugin/abi.hpp"

namespace tutti::plugin {

/// What a listener hands out, and its peer connects by. The plugin keeps notes in it while it connects, so it stays
/// where it is.
struct alignas(64) Handle {
    std::array<std::byte, abi::handle_bytes> bytes{};
};

struct Device {
    int number = 0;
    std::string name;
    bool host_memory = false;
    bool gpu_memory = false;   // as a dma-buf
    bool needs_flush = false;  // for that, whatever the GPU
    int speed = 0;             // Mbit/s
    int most_connections = 0;
    std::size_t most_bytes = 0;  // of a message
};

class Plugin {
  public:
    virtual ~Plugin() = default;

    /// "/opt/lib/libnccl-net-x.so", for error texts.
    virtual const std::string& file() const = 0;
    virtual std::string name() const = 0;
    virtual int version() const = 0;  // of the interface, for the log

    virtual int devices() = 0;
    virtual Device device(int number) = 0;

    /// One for each communicator: what goes wrong in one is none of the others' business. Null where the version has
    /// none.
    virtual std::shared_ptr<void> context() = 0;

    virtual void* listen(void* context, int device, Handle& out) = 0;
    /// nullptr: not yet.
    virtual void* connect(void* context, int device, Handle& to) = 0;
    virtual void* accept(void* listening) = 0;

    /// [data, data + size) may be sent, or received to, on this connection, until it is forgotten.
    virtual void* register_memory(void* connection, void* data, std::size_t size) = 0;
    /// The same on a GPU: the first byte of the dma-buf fd is data, where kernels see it. Only where can_take_gpus().
    virtual void* register_gpu_memory(void* connection, void* data, std::size_t size, int fd) = 0;
    virtual bool can_take_gpus() const = 0;
    virtual void forget_memory(void* connection, void* memory) = 0;

    /// A request, to be asked for until it is done; nullptr: no room, to be called again. The data lies in `memory`.
    virtual void* send(void* connection, void* data, std::size_t size, void* memory) = 0;
    virtual void* receive(void* connection, void* data, std::size_t size, void* memory) = 0;
    /// What was received there, on a GPU, is seen by its kernels once the request is done; nullptr: at once. Only where
    /// can_flush().
    virtual void* flush(void* connection, void* data, std::size_t size, void* memory) = 0;
    virtual bool can_flush() const = 0;
    /// True once, and then the request is no more. size: of what was received.
    virtual bool is_done(void* request, std::size_t& size) = 0;

    // Of what is closed, requests should be done, and memory forgotten. These do not throw: failures are logged.
    virtual void close_send(void* connection) = 0;
    virtual void close_receive(void* connection) = 0;
    virtual void close_listen(void* listening) = 0;
};

/// Loads what `value`, in the syntax of NCCL_NET_PLUGIN, names: paths, or names x of libnccl-net-x.so, separated by
/// commas, of which the first one counts that works; STATIC_PLUGIN is the program itself. Throws tuttiSystemError that
/// names every file that was tried and why it does not serve. The plugin stays loaded: it may have threads.
std::shared_ptr<Plugin> load(const std::string& value);

/// What the object at `library` (of dlopen) exports, at its newest version and initialized. Throws.
std::shared_ptr<Plugin> adapt(void* library, const std::string& file);

}  // namespace tutti::plugin
