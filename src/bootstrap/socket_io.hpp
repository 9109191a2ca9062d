// What waits to be written to a connection's socket, and what was read from it and not used up yet. Descriptors travel
// beside bytes on Unix sockets. All bytes are wiped when they have gone: there may be a share of a secret among them.
// No call waits.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <memory>

#include "base/os.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::bootstrap {

class Outgoing {
  public:
    bool empty() const { return pieces_.empty(); }
    /// A descriptor travels with the first of bytes, and lives until that is in the kernel.
    void add(View bytes, std::shared_ptr<Fd> descriptor);
    /// Writes as much as socket takes. Then errno says why there is more, if there is.
    void write(const Fd& socket);
    void clear() { pieces_.clear(); }

  private:
    struct Piece {
        Bytes bytes;
        std::size_t written = 0;
        std::shared_ptr<Fd> descriptor;
    };
    static ssize_t write_one(const Fd& socket, const Piece& piece);

    std::deque<Piece> pieces_;
};

/// The shortest one so far, as the kernel has measured it; 0 of what is no TCP connection.
std::chrono::microseconds round_trip(int socket);

class Incoming {
  public:
    /// One read, so that no connection can starve the others: as recvmsg() returns. with_descriptors: takes those, too;
    /// else the kernel closes them.
    ssize_t read(const Fd& socket, bool with_descriptors);

    /// What was read and not used up.
    View rest() const { return View(bytes_).subspan(used_); }
    void use(std::size_t bytes) { used_ += bytes; }
    /// The oldest descriptor; none if there is none.
    Fd take_descriptor();
    /// Drops what was used up. Nothing of rest() is valid any more.
    void compact();

  private:
    Bytes bytes_;
    std::size_t used_ = 0;
    std::deque<Fd> descriptors_;
};

}  // namespace tutti::bootstrap
