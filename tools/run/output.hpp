// --prefix: a rank's output stream on its way through tutti-run. Whole lines go out behind the rank's number.
#pragma once

#include <functional>
#include <string>

namespace run {

/// Waits until the descriptor takes output. False if nobody is to wait for that any longer.
using Writable = std::function<bool(int fd)>;

class Output {
  public:
    /// Makes the pipe; returns the end that the rank writes to, or -1 (errno).
    int open(int rank, int to);

    int from() const { return from_; }

    /// Passes on what has come, at most one piece: other ranks' output is waiting too.
    void pass_on(const Writable& writable);

    /// The rank has ended: passes on all that is left, a last line without its newline too.
    void finish(const Writable& writable);

  private:
    bool read_piece(const Writable& writable);
    void write_lines(bool all, const Writable& writable);
    void write_all(const std::string& text, const Writable& writable);
    void close();

    int from_ = -1;
    int to_ = -1;
    std::string head_;
    std::string pending_;
};

}  // namespace run
