// --prefix: a rank's output stream on its way through tutti-run. Whole lines go out behind the rank's number.
#pragma once

#include <string>

namespace run {

class Output {
  public:
    /// Makes the pipe; returns the end that the rank writes to, or -1 (errno).
    int open(int rank, int to);

    int from() const { return from_; }

    /// Passes on what has come, at most one piece: other ranks' output is waiting too.
    void pass_on();

    /// The rank has ended: passes on all that is left, a last line without its newline too.
    void finish();

  private:
    bool read_piece();
    void write_lines(bool all);
    void write_all(const std::string& text);
    void close();

    int from_ = -1;
    int to_ = -1;
    std::string head_;
    std::string pending_;
};

}  // namespace run
