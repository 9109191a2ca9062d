#include "transport/tcp/outbox.hpp"

#include <algorithm>

#include "base/result.hpp"

namespace tutti::tcp {

void Outbox::queue(const net::Header& header, const std::byte* body, bool copied) {
    TUTTI_ASSERT(has_room());
    Frame& f = frames_[(first_ + count_++) % plain_frames];
    const bootstrap::View head = std::as_bytes(std::span(&header, 1)), content(body, header.bytes);
    f.head_bytes = head.size();
    f.body = body;
    f.body_bytes = content.size();
    if (sealing_) {
        f.head_bytes += Cipher::extra;
        sealing_->seal(head, f.head.data());
        if (content.empty()) return;
        f.body_bytes += Cipher::extra;
        f.own.resize(f.body_bytes);
        sealing_->seal(content, f.own.data());
        f.body = f.own.data();
        return;
    }
    std::copy(head.begin(), head.end(), f.head.begin());
    if (content.size() <= f.head.size() - head.size()) {  // one piece takes the kernel less time than two
        std::copy(content.begin(), content.end(), f.head.begin() + head.size());
        f.head_bytes += content.size();
        f.body_bytes = 0;
        return;
    }
    if (!copied) return;
    f.own.assign(content.begin(), content.end());
    f.body = f.own.data();
}

Outbox::Pieces Outbox::pieces() {
    std::size_t pieces = 0, skip = sent_, bytes = 0;
    const auto add = [&](const std::byte* from, std::size_t size) {
        const std::size_t gone = std::min(skip, size);
        skip -= gone;
        if (size > gone) pieces_[pieces++] = {const_cast<std::byte*>(from) + gone, size - gone};
        bytes += size - gone;
    };
    for (unsigned i = 0; i < count_; ++i) {
        const Frame& f = frames_[(first_ + i) % plain_frames];
        add(f.head.data(), f.head_bytes);
        add(f.body, f.body_bytes);
    }
    return {std::span(pieces_).first(pieces), bytes};
}

void Outbox::sent(std::size_t bytes) {
    sent_ += bytes;
    while (count_ > 0) {
        const Frame& f = frames_[first_];
        if (sent_ < f.head_bytes + f.body_bytes) return;
        sent_ -= f.head_bytes + f.body_bytes;
        first_ = (first_ + 1) % plain_frames;
        --count_;
    }
}

}  // namespace tutti::tcp
