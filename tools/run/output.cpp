#include "run/output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace run {

namespace {
// A line is passed on in one piece up to this length.
constexpr std::size_t longest_line = 65536;
}  // namespace

int Output::open(int rank, int to) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    from_ = ends[0];
    to_ = to;
    head_ = "[" + std::to_string(rank) + "] ";
    return ends[1];
}

void Output::close() {
    if (from_ >= 0) ::close(from_);
    from_ = -1;
}

void Output::pass_on() {
    read_piece();
}

void Output::finish() {
    while (read_piece()) continue;
    if (from_ >= 0) write_lines(true);
    close();
}

/// False when there is nothing to be had now, or ever.
bool Output::read_piece() {
    char piece[16384];
    const ssize_t size = from_ < 0 ? 0 : read(from_, piece, sizeof piece);
    if (size > 0) pending_.append(piece, static_cast<std::size_t>(size));
    write_lines(size == 0);
    if (size == 0) close();
    return size > 0;
}

void Output::write_lines(bool all) {
    std::string out;
    std::size_t begin = 0;
    for (std::size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1)
        out += head_ + pending_.substr(begin, end + 1 - begin);
    pending_.erase(0, begin);
    if (!pending_.empty() && (all || pending_.size() > longest_line)) {
        out += head_ + pending_ + "\n";
        pending_.clear();
    }
    write_all(out);
}

void Output::write_all(const std::string& text) {
    for (std::size_t done = 0; done < text.size();) {
        const ssize_t size = write(to_, text.data() + done, text.size() - done);
        if (size >= 0) {
            done += static_cast<std::size_t>(size);
        } else if (errno == EAGAIN) {
            pollfd writable = {to_, POLLOUT, 0};
            poll(&writable, 1, -1);
        } else if (errno != EINTR) {
            return close();  // nobody reads us: the rank gets SIGPIPE, as if it wrote there itself
        }
    }
}

}  // namespace run
