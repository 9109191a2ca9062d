#include "harness/harness.hpp"

#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tutti::harness {

void run(int ranks, const std::function<void(int rank)>& body) {
    std::exception_ptr first;
    std::mutex guard;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            try {
                body(rank);
            } catch (...) {
                std::lock_guard lock(guard);
                if (!first) first = std::current_exception();
            }
        });
    for (std::thread& t : threads) t.join();
    if (first) std::rethrow_exception(first);
}

void check(bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error(what);
}

}  // namespace tutti::harness
