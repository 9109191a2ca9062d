// What is left of memory, by files of /proc and /sys that tests have written.
#include "base/memory.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "harness/catch.hpp"
#include "harness/folder.hpp"

using namespace tutti;

namespace {

constexpr std::size_t mib = 1 << 20;

/// A machine with 8,192 MiB available.
struct Machine {
    Machine() {
        write("/proc/meminfo", "MemTotal: 9000000 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\nBuffers: 3 kB\n");
    }
    void write(const std::string& path, const std::string& content) {
        const std::filesystem::path whole = folder.path + path;
        std::filesystem::create_directories(whole.parent_path());
        std::ofstream(whole) << content;
    }
    void group(const std::string& path, const std::string& limit, std::size_t used, std::size_t cached) {
        write(path + "/memory.max", limit + "\n");
        write(path + "/memory.current", std::to_string(used) + "\n");
        write(path + "/memory.stat", "anon 5\ninactive_file " + std::to_string(cached / 2) + "\nactive_file " +
                                         std::to_string(cached - cached / 2) + "\nslab 7\n");
    }
    std::size_t available() const { return available_memory(folder.path); }
    harness::Folder folder;
};

}  // namespace

TEST_CASE("memory without a control group is what the machine has available") {
    Machine m;
    CHECK(m.available() == 8192 * mib);
    m.write("/proc/self/cgroup", "nonsense\n1:name=systemd:/\n0::/\n");
    CHECK(m.available() == 8192 * mib);
    CHECK(available_memory("/does/not/exist") == SIZE_MAX);
    CHECK(available_memory() < SIZE_MAX);
}

TEST_CASE("memory is what the limits of control groups leave, those of outer groups as well") {
    Machine m;
    m.write("/proc/self/cgroup", "0::/jobs/7\n");
    m.group("/sys/fs/cgroup/jobs/7", "max", 100 * mib, 0);
    CHECK(m.available() == 8192 * mib);
    m.group("/sys/fs/cgroup/jobs", std::to_string(1000 * mib), 300 * mib, 100 * mib);
    CHECK(m.available() == 800 * mib);  // 300 are used, but 100 of them given back at need
    m.group("/sys/fs/cgroup/jobs/7", std::to_string(500 * mib), 100 * mib, 0);
    CHECK(m.available() == 400 * mib);
    m.group("/sys/fs/cgroup/jobs/7", std::to_string(50 * mib), 100 * mib, 0);
    CHECK(m.available() == 0);
}

TEST_CASE("in a container whose path is the host's, what is mounted counts") {
    Machine m;
    m.write("/proc/self/cgroup", "4:cpu,memory:/docker/4711\n0::/\n");
    const std::string mounted = "/sys/fs/cgroup/memory";
    m.write(mounted + "/memory.limit_in_bytes", std::to_string(64 * mib));
    m.write(mounted + "/memory.usage_in_bytes", std::to_string(24 * mib));
    m.write(mounted + "/memory.stat", "inactive_file 1\ntotal_inactive_file 1048576\ntotal_active_file 1048576\n");
    CHECK(m.available() == 42 * mib);
    m.write(mounted + "/memory.limit_in_bytes", "9223372036854771712\n");  // none
    CHECK(m.available() == 8192 * mib);
}
