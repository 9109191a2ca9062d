// What a tuttiDp_t points to. Its memory is never given back, so a destroyed one is known as such.
#pragma once

#include <atomic>
#include <memory>

#include "dp/engine.hpp"

struct tuttiDp {
    static constexpr std::uint32_t living = 0x54754431, dead = 0x54754430;
    std::atomic<std::uint32_t> magic{living};
    std::unique_ptr<tutti::dp::Engine> engine;
};
