// A header as a sender makes it.
#pragma once

#include <cstdint>

#include "transport/net/header.hpp"

namespace harness {

inline tutti::net::Header message(std::size_t bytes, std::uint32_t signature) {
    tutti::net::Header h{};
    h.what = tutti::net::What::message;
    h.in_slot = bytes > tutti::inline_bytes;
    h.bytes = static_cast<std::uint32_t>(bytes);
    h.signature = signature;
    return h;
}

}  // namespace harness
