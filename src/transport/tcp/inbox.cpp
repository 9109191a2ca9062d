#include "transport/tcp/inbox.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::tcp {
namespace {

constexpr std::size_t plain_buffer = 16 * 1024;  // the rest of a longer body is read straight to its place
constexpr std::size_t sealed_buffer = 2 * (slot_bytes + sizeof(net::Header) + 2 * Cipher::extra);
constexpr const char* was_changed = "what came over the connection was changed on its way";

}  // namespace

Inbox::Inbox(std::unique_ptr<Cipher> opening, bootstrap::View unread)
    : opening_(std::move(opening)),
      // unread is bounded: a dialer reads no more than the buffer of its connection holds.
      buffer_(std::max(opening_ ? sealed_buffer : plain_buffer, unread.size())),
      end_(unread.size()) {
    std::ranges::copy(unread, buffer_.begin());
}

std::array<iovec, 2> Inbox::room() {
    if (begin_ == end_) begin_ = end_ = 0;
    const std::size_t needed = in_body_ ? header_.bytes + Cipher::extra : sizeof(net::Header) + Cipher::extra;
    if (opening_ && buffer_.size() < 2 * needed) buffer_.resize(2 * needed);  // slots are larger on a long path
    if (begin_ > 0 && buffer_.size() - begin_ < (opening_ ? needed : buffer_.size())) {
        std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    return {{{place_ + have_, direct()}, {buffer_.data() + end_, buffer_.size() - end_}}};
}

void Inbox::add(std::size_t bytes) {
    const std::size_t body = std::min(bytes, direct());
    have_ += body;
    end_ += bytes - body;
}

const char* Inbox::digest(net::Recipient& to) {
    for (;;) {
        if (!in_body_) {
            const char* const why = read_header(to);
            if (why != nullptr || !in_body_) return why;
        }
        const std::size_t size = header_.bytes, here = end_ - begin_;
        if (opening_ && size > 0) {
            if (here < size + Cipher::extra) return nullptr;
            if (!opening_->open(bootstrap::View(buffer_.data() + begin_, size + Cipher::extra), place_))
                return was_changed;
            begin_ += size + Cipher::extra;
        } else {
            const std::size_t part = std::min(size - have_, here);
            if (part > 0) std::memcpy(place_ + have_, buffer_.data() + begin_, part);
            begin_ += part;
            have_ += part;
            if (have_ < size) return nullptr;
        }
        in_body_ = false;
        to.finish(header_);
    }
}

/// Takes a header from the buffer and passes it on. Sets in_body_ if a whole one was there. Returns why the connection
/// is lost; nullptr if it is not.
const char* Inbox::read_header(net::Recipient& to) {
    const std::size_t size = sizeof header_ + (opening_ ? Cipher::extra : 0);
    if (end_ - begin_ < size) return nullptr;
    const bootstrap::View bytes(buffer_.data() + begin_, size);
    begin_ += size;
    if (!opening_)
        std::memcpy(&header_, bytes.data(), sizeof header_);
    else if (!opening_->open(bytes, reinterpret_cast<std::byte*>(&header_)))
        return was_changed;
    const char* why = "it has sent a frame that no version of the protocol has";
    place_ = header_.fits() ? to.begin(header_, why) : nullptr;
    if (place_ == nullptr) return why;
    in_body_ = true;
    have_ = 0;
    return nullptr;
}

}  // namespace tutti::tcp
