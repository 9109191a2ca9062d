// The buffers of a connection's socket: bytes to write, and bytes that were read but not used up yet. On Unix sockets
// descriptors travel with the bytes. Memory of theirs is wiped when it is given back, since a share of a secret may be
// among them. No call blocks.
#pragma once

#include <sodium.h>
#include <sys/types.h>

#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "base/os.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::bootstrap {

/// An allocator whose memory is wiped before it is freed.
template <typename T>
struct Wiping : std::allocator<T> {
    template <typename U>
    struct rebind {
        using other = Wiping<U>;
    };
    void deallocate(T* at, std::size_t count) {
        sodium_memzero(at, count * sizeof(T));
        std::allocator<T>::deallocate(at, count);
    }
};
using WipedBytes = std::vector<std::byte, Wiping<std::byte>>;

/// Owned by its connection, as is Incoming; for the service thread alone.
class Outgoing {
  public:
    bool empty() const { return pieces_.empty(); }
    /// Adds bytes. descriptor, if not nullptr, travels with the first of them, and is kept until that is written.
    void add(View bytes, std::shared_ptr<Fd> descriptor);
    /// Writes as much as the socket takes. If not empty() afterwards, errno says why.
    void write(const Fd& socket);
    void clear() { pieces_.clear(); }

  private:
    struct Piece {
        WipedBytes bytes;
        std::size_t written = 0;
        std::shared_ptr<Fd> descriptor;
    };
    static ssize_t write_one(const Fd& socket, const Piece& piece);

    std::deque<Piece> pieces_;
};

/// The shortest round trip that the kernel has measured so far; 0 for sockets that are not TCP.
std::chrono::microseconds round_trip(int socket);

class Incoming {
  public:
    /// Reads once, so that no connection can starve the others, and returns what recvmsg() does. with_descriptors: also
    /// takes descriptors; otherwise the kernel closes them.
    ssize_t read(const Fd& socket, bool with_descriptors);

    /// The bytes that were read and not used up.
    View rest() const { return View(bytes_).subspan(used_); }
    void use(std::size_t bytes) { used_ += bytes; }
    /// The oldest descriptor; an empty Fd if there is none.
    Fd take_descriptor();
    /// Wipes and drops the bytes that were used up, which invalidates rest().
    void compact();

  private:
    WipedBytes bytes_;
    std::size_t used_ = 0;
    std::deque<Fd> descriptors_;
};

}  // namespace tutti::bootstrap
