#include "run/output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

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

void Output::pass_on(const Writable& writable) {
    read_piece(writable);
}

void Output::finish(const Writable& writable) {
    while (read_piece(writable)) continue;
    if (from_ >= 0) write_lines(true, writable);
    close();
}

/// False when there is nothing to be had now, or ever.
bool Output::read_piece(const Writable& writable) {
    char piece[16384];
    const ssize_t size = from_ < 0 ? 0 : read(from_, piece, sizeof piece);
    if (size > 0) pending_.append(piece, static_cast<std::size_t>(size));
    write_lines(size == 0, writable);
    if (size == 0) close();
    return size > 0;
}

void Output::write_lines(bool all, const Writable& writable) {
    std::string out;
    std::size_t begin = 0;
    for (std::size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1)
        out += head_ + pending_.substr(begin, end + 1 - begin);
    pending_.erase(0, begin);
    if (!pending_.empty() && (all || pending_.size() > longest_line)) {
        out += head_ + pending_ + "\n";
        pending_.clear();
    }
    write_all(out, writable);
}

/// Whole lines at a time, and no more than a writable pipe takes without waiting: the job must go on meanwhile.
void Output::write_all(const std::string& text, const Writable& writable) {
    for (std::size_t done = 0; done < text.size();) {
        std::size_t end = std::min(text.size(), done + PIPE_BUF);
        if (const std::size_t newline = text.rfind('\n', end - 1); newline != std::string::npos && newline >= done)
            end = newline + 1;
        if (!writable(to_)) return close();
        const ssize_t size = write(to_, text.data() + done, end - done);
        if (size >= 0)
            done += static_cast<std::size_t>(size);
        else if (errno != EAGAIN && errno != EINTR)
            return close();  // nobody reads us: the rank gets SIGPIPE, as if it wrote there itself
    }
}

}  // namespace run
