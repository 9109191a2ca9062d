// Calls that may never return: those of name servers, and of PMIx.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

#include "base/condition.hpp"
#include "base/thread.hpp"

namespace tutti::bootstrap {

/// What a call returns, which a thread of its own makes; nothing if the time has passed before. The thread is then left
/// behind, for as long as the call takes, so `call` owns what it uses. It must not throw. Throws tuttiSystemError if no
/// thread can be started.
template <class Call>
auto in_time(std::chrono::milliseconds timeout, Call call) {
    struct Asked {
        std::mutex mutex;
        Condition over;
        std::optional<decltype(call())> answer;
    };
    const auto asked = std::make_shared<Asked>();
    start_thread("tutti-ask", [asked, call = std::move(call)] {
        auto answer = call();
        const std::lock_guard lock(asked->mutex);
        asked->answer.emplace(std::move(answer));
        asked->over.notify_one();
    }).detach();
    std::unique_lock lock(asked->mutex);
    asked->over.wait_for(lock, timeout, [&] { return asked->answer.has_value(); });
    return std::move(asked->answer);
}

}  // namespace tutti::bootstrap
