// A process without memory, but for a little heap.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose own mappings would fail
#define TUTTI_TEST_CAN_FORBID_MAPPINGS 1

namespace tutti::harness {

/// Nothing larger than a little heap can be mapped.
class NoMappings {
  public:
    explicit NoMappings(std::size_t heap = std::size_t{4} << 20) {
        std::size_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        getrlimit(RLIMIT_AS, &before_);
        rlimit little = before_;
        little.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + heap;
        setrlimit(RLIMIT_AS, &little);
    }
    ~NoMappings() { setrlimit(RLIMIT_AS, &before_); }
    NoMappings(const NoMappings&) = delete;

  private:
    rlimit before_{};
};

}  // namespace tutti::harness
#else
#define TUTTI_TEST_CAN_FORBID_MAPPINGS 0
#endif
