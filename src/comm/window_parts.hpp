// What ranks tell each other when they open a window. For windows.cpp and gpu_windows.cpp alone.
#pragma once

#include "comm/windows.hpp"
#include "gpu/boards.hpp"

namespace tutti {

/// What a rank tells each other rank about its part of a window, and whether it could open it.
struct Windows::Told {
    WindowPart part;
    gpu::Exposed exposed;
    gpu::Offered offered;     // the part's allocation, if it is in a strip
    std::uint64_t begins;     // the part's first byte in it
    std::uint64_t multicast;  // rank 0: key under which the object of multicast is offered
    std::int32_t lacks;       // 1: a system resource, such as memory, is missing; 0: another trouble
    std::int32_t symmetric;   // 1: the rank has promised symmetric use
    char trouble[212];
};

/// Offers the session's members one descriptor while it lives.
class Windows::Offer {
  public:
    explicit Offer(Session& session) : session_(session) {}
    ~Offer() {
        if (key_ != 0) session_.withdraw(key_);
    }
    Offer(const Offer&) = delete;
    std::uint64_t make(const Fd& fd) {
        while (key_ == 0) random_bytes(&key_, sizeof key_);
        session_.offer(key_, fd);
        return key_;
    }

  private:
    Session& session_;
    std::uint64_t key_ = 0;
};

}  // namespace tutti
