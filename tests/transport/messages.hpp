// A header as a sender makes it.
#pragma once

#include <cstdint>

#include "transport/net/header.hpp"

namespace tutti::harness {

inline net::Header message(std::size_t bytes, std::uint32_t signature, int channel = 0) {
    net::Header h{};
    h.what = net::What::message;
    h.channel = static_cast<std::uint8_t>(channel);
    h.in_slot = bytes > inline_bytes;
    h.bytes = static_cast<std::uint32_t>(bytes);
    h.signature = signature;
    return h;
}

}  // namespace tutti::harness
