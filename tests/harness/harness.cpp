#include "harness/harness.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string_view>
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

unsigned seed() {
    static const unsigned chosen = [] {
        const char* const given = std::getenv("TUTTI_TEST_SEED");
        const unsigned number =
            given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device()();
        std::printf("random tests: TUTTI_TEST_SEED=%u runs them with the same numbers again\n", number);
        std::fflush(stdout);
        return number;
    }();
    return chosen;
}

std::string this_program() {
    return std::filesystem::read_symlink("/proc/self/exe");
}

std::string run_with(const std::string& settings, const std::string& tests) {
    FILE* const output = popen((settings + " " + this_program() + " '" + tests + "' 2>&1").c_str(), "r");
    std::string said;
    for (char line[256]; fgets(line, sizeof line, output) != nullptr;) said += line;
    return pclose(output) == 0 ? "" : said;
}

bool under_valgrind() {
    const char* const loaded = std::getenv("LD_PRELOAD");
    return loaded != nullptr && std::string_view(loaded).find("vgpreload") != std::string_view::npos;
}

std::ptrdiff_t open_descriptors() {
    const auto count = [] {
        const std::filesystem::directory_iterator all("/proc/self/fd");
        return std::distance(begin(all), end(all));
    };
    std::ptrdiff_t open = count();
    for (int same = 0, looks = 0; same < 10 && looks < 1000; ++looks) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        const std::ptrdiff_t now = count();
        same = now == open ? same + 1 : 0;
        open = now;
    }
    return open;
}

bool waited(std::string_view text, int rank, double seconds, std::string_view rest) {
    const std::string begin = "rank " + std::to_string(rank) + " waited ";
    const std::size_t at = text.find(begin);
    if (at == std::string_view::npos) return false;
    const std::string after(text.substr(at + begin.size()));
    char* end = nullptr;
    return std::strtod(after.c_str(), &end) >= seconds && std::string_view(end).starts_with(" s " + std::string(rest));
}

void check(bool holds, std::string_view what) {
    if (!holds) throw std::runtime_error(std::string(what));
}

}  // namespace tutti::harness
