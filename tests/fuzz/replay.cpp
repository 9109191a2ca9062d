// replay CORPUS TARGET [MUTANTS]: gives a target each file of CORPUS/TARGET, and MUTANTS damaged ones of each; without
// libFuzzer, so with any compiler. TUTTI_TEST_SEED chooses the damage. An input that ends the program is written to
// ./crash-TARGET: `replay DIRECTORY_WITH_IT` or libFuzzer's program run it again.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "fuzz.hpp"

namespace tutti::fuzz {
namespace {

using Bytes = std::vector<std::uint8_t>;

std::map<std::string, Target>& targets() {
    static std::map<std::string, Target> all;
    return all;
}

const Bytes* under_way = nullptr;
std::string crash_file;

void keep_input() {
    if (under_way == nullptr) return;
    const int file = open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || write(file, under_way->data(), under_way->size()) < 0) return;
    std::fprintf(stderr, "the input is in %s\n", crash_file.c_str());
    under_way = nullptr;
}

extern "C" void on_signal(int number) {
    keep_input();
    signal(number, SIG_DFL);
    raise(number);
}

void run(Target target, const Bytes& input) {
    under_way = &input;
    const Bytes exact(input);  // so that the address sanitizer sees its end
    target(Input(exact.data(), exact.size()));
    under_way = nullptr;
}

/// A few changes, of the kinds that fuzzers make.
Bytes damaged(Bytes bytes, const std::vector<Bytes>& others, std::mt19937& random) {
    const auto below = [&](std::size_t most) { return static_cast<std::ptrdiff_t>(random() % std::max(most, 1ul)); };
    static constexpr std::uint64_t odd[] = {0,      1,          0x7f,       0x80,       0xff,  0x7fff,    0x8000,
                                            0xffff, 0x7fffffff, 0x80000000, 0xffffffff, ~0ull, 1ull << 63};
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
        const std::ptrdiff_t at = below(bytes.size() + 1);
        const auto left = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(bytes.size()) - at);
        const std::size_t length = std::min(left, 1 + random() % 16ul);
        const Bytes& other = others[random() % others.size()];
        switch (random() % 6) {
            case 0:
                if (left > 0) bytes[static_cast<std::size_t>(at)] ^= static_cast<std::uint8_t>(1u << random() % 8);
                break;
            case 1:
                if (left > 0) bytes[static_cast<std::size_t>(at)] = static_cast<std::uint8_t>(random());
                break;
            case 2:
                bytes.erase(bytes.begin() + at, bytes.begin() + at + static_cast<std::ptrdiff_t>(length));
                break;
            case 3: {
                const std::uint64_t value = odd[random() % std::size(odd)];
                const std::size_t size = std::size_t{1} << random() % 4;
                if (left > 0) std::memcpy(bytes.data() + at, &value, std::min(left, size));
                break;
            }
            case 4: {
                const Bytes copy(bytes.begin() + at, bytes.begin() + at + static_cast<std::ptrdiff_t>(length));
                bytes.insert(bytes.begin() + below(bytes.size() + 1), copy.begin(), copy.end());
                break;
            }
            default:
                bytes.insert(bytes.begin() + at, other.begin() + below(other.size() + 1), other.end());
                bytes.resize(std::min<std::size_t>(bytes.size(), 8192));
        }
    }
    return bytes;
}

int main(const std::filesystem::path& corpus, const std::string& name, int mutants) {
    const auto target = targets().find(name);
    if (target == targets().end()) {
        std::fprintf(stderr, "there is no target %s\n", name.c_str());
        return 2;
    }
    std::map<std::string, Bytes> files;  // in the order of their names
    for (const auto& entry : std::filesystem::directory_iterator(corpus / name)) {
        std::ifstream file(entry.path(), std::ios::binary);
        files[entry.path().filename()] = Bytes(std::istreambuf_iterator<char>(file), {});
    }
    if (files.empty()) {
        std::fprintf(stderr, "%s is empty\n", (corpus / name).c_str());
        return 2;
    }
    const char* const chosen = std::getenv("TUTTI_TEST_SEED");
    const auto seed =
        chosen != nullptr ? static_cast<unsigned>(std::strtoul(chosen, nullptr, 10)) : std::random_device{}();
    std::printf("%s: %zu files, %d mutants of each, TUTTI_TEST_SEED=%u\n", name.c_str(), files.size(), mutants, seed);
    std::fflush(stdout);
    crash_file = "crash-" + name;
    for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, on_signal);
    std::mt19937 random(seed);
    std::vector<Bytes> inputs{{}};
    for (const auto& [file, bytes] : files) inputs.push_back(bytes);
    for (const Bytes& input : inputs) run(target->second, input);
    for (const Bytes& input : inputs)
        for (int i = 0; i < mutants; ++i) run(target->second, damaged(input, inputs, random));
    return 0;
}

}  // namespace

Known::Known(const char* name, Target target) {
    targets()[name] = target;
}

}  // namespace tutti::fuzz

int main(int count, char** arguments) {
    if (count < 3) {
        std::fprintf(stderr, "usage: replay CORPUS TARGET [MUTANTS]\n");
        return 2;
    }
    return tutti::fuzz::main(arguments[1], arguments[2], count > 3 ? std::atoi(arguments[3]) : 0);
}
