// The room everything stands on: memory, waiting, texts, the table of variables.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/cores.hpp"
#include "base/files.hpp"
#include "base/os.hpp"
#include "base/result.hpp"
#include "base/types.hpp"
#include "harness/catch.hpp"
#include "harness/folder.hpp"

using namespace tutti;

TEST_CASE("a memfd can be mapped twice, and not resized") {
    Fd fd = make_memfd("test", 8192);
    Mapping a = Mapping::of(fd), b = Mapping::of(fd);
    REQUIRE(a.size() == 8192);
    REQUIRE(a.base() != b.base());
    a.base()[5000] = std::byte{42};
    REQUIRE(b.base()[5000] == std::byte{42});
    Mapping c = std::move(a);
    REQUIRE(a.base() == nullptr);
    REQUIRE(c.base()[5000] == std::byte{42});
    REQUIRE(Mapping::anonymous(100).base() != nullptr);
    REQUIRE_THROWS_AS(Mapping::of(Fd()), Error);
}

TEST_CASE("shared memory that its maker could shrink is not mapped") {
    const Fd fd(memfd_create("test", MFD_CLOEXEC));
    REQUIRE(ftruncate(fd.get(), 4096) == 0);
    CHECK_THROWS_WITH(Mapping::of(fd), Catch::Matchers::Contains("not sealed"));
    CHECK_THROWS_WITH(Mapping::of(Fd(open("/dev/null", O_RDWR))), Catch::Matchers::Contains("not sealed"));
}

TEST_CASE("a forked child keeps nothing open that is kept from children") {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    const Fd out(ends[0]);
    Fd in(ends[1]);
    in.keep_from_children();
    Fd copy = in.duplicate(), moved = std::move(in);
    const auto is_over = [&] {
        pollfd end{out.get(), POLLIN, 0};
        return poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0;
    };
    int wire[2];  // the child says that it has begun, and lives until this end is closed
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wire) == 0);
    const pid_t child = fork();
    char byte = 0;
    if (child == 0) {
        close(wire[0]);
        // The numbers are still taken, so that closing them closes nothing else.
        const bool right = write(moved.get(), &byte, 1) == 1 && write(copy.get(), &byte, 1) == 1;
        _exit(write(wire[1], &byte, 1) == 1 && read(wire[1], &byte, 1) == 0 && right ? 0 : 1);
    }
    close(wire[1]);
    CHECK(read(wire[0], &byte, 1) == 1);
    CHECK_FALSE(is_over());
    moved.reset();
    CHECK_FALSE(is_over());
    copy.reset();
    CHECK(is_over());
    close(wire[0]);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

TEST_CASE("a file is read whole, or named") {
    const std::string boot_id = read_file("/proc/sys/kernel/random/boot_id");
    CHECK(boot_id.size() == 37);
    CHECK(boot_id.back() == '\n');
    CHECK(read_file("/proc/self/exe").size() > 100'000);
    CHECK(read_file("/dev/null").empty());
    CHECK(line_of("/proc/sys/kernel/random/boot_id") + "\n" == boot_id);
    CHECK(line_of("/proc/self/status").starts_with("Name:"));
    CHECK(line_of("/does/not/exist").empty());
    CHECK(line_of("/proc").empty());
    CHECK_THROWS_WITH(read_file("/does/not/exist"),
                      "the file /does/not/exist can't be read: No such file or directory");
    CHECK_THROWS_WITH(read_file("/proc"), "the file /proc can't be read: Is a directory");
    CHECK_THROWS_WITH(read_file("/dev/zero", 100000), Catch::Matchers::Contains("more than the 100000 bytes"));
}

TEST_CASE("a file is replaced as a whole, whoever else replaces it at the same time") {
    const harness::Folder folder;
    const std::string path = folder.path + "/file";
    std::atomic<int> torn{0}, failed{0};
    std::vector<std::thread> threads;
    for (char mine = 'a'; mine < 'e'; ++mine)
        threads.emplace_back([&, mine] {
            for (int i = 0; i < 20; ++i) try {
                    replace_file(path, std::string(100'000, mine));
                    const std::string all = read_file(path);
                    torn += all.empty() || all != std::string(100'000, all.front());
                } catch (const Error&) {
                    ++failed;
                }
        });
    for (std::thread& t : threads) t.join();
    CHECK((torn == 0 && failed == 0));
    CHECK(files_in(folder.path).size() == 3);  // the file, ".", ".."
}

TEST_CASE("a futex sleeps no longer than told, and is woken") {
    std::atomic<std::uint32_t> word{0};
    futex_wait(word, 0, std::chrono::milliseconds(5));
    futex_wait(word, 1, std::chrono::seconds(100));  // not the value: returns at once
    std::thread waker([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        word = 1;
        futex_wake(word);
    });
    while (word == 0) futex_wait(word, 0, std::chrono::seconds(100));
    waker.join();
    REQUIRE(word == 1);
}

TEST_CASE("errors carry their code and a text") {
    try {
        fail(tuttiInvalidUsage, "rank %d of %d", 3, 4);
    } catch (const Error& e) {
        REQUIRE(e.code() == tuttiInvalidUsage);
        REQUIRE(std::string(e.what()) == "rank 3 of 4");
    }
    errno = ENOENT;
    REQUIRE_THROWS_WITH(fail_errno("opening %s", "x"), "opening x: No such file or directory");
}

TEST_CASE("types have sizes and names in the order of the C API") {
    REQUIRE(size_of(static_cast<DataType>(tuttiInt8)) == 1);
    REQUIRE(size_of(static_cast<DataType>(tuttiFloat16)) == 2);
    REQUIRE(size_of(static_cast<DataType>(tuttiFloat32)) == 4);
    REQUIRE(size_of(static_cast<DataType>(tuttiFloat64)) == 8);
    REQUIRE(name_of(static_cast<DataType>(tuttiBfloat16)) == "bfloat16");
    REQUIRE(name_of(static_cast<DataType>(tuttiFloat8e5m2)) == "f8e5m2");
    REQUIRE(name_of(Collective::recv) == "recv");
    REQUIRE(data_types == tuttiNumTypes);
}

TEST_CASE("only variables of the table are read, and empty ones are unset") {
    setenv("SLURM_JOB_ID", "12", 1);
    REQUIRE(environment("SLURM_JOB_ID").value() == "12");
    setenv("SLURM_JOB_ID", "", 1);
    REQUIRE_FALSE(environment("SLURM_JOB_ID").has_value());
    unsetenv("SLURM_JOB_ID");
    for (const Variable& v : variables()) REQUIRE(std::strlen(v.meaning) > 10);
    REQUIRE(config().timeout_ms > 0);
}

TEST_CASE("the number of channels has its old name, too, until version 0.2") {
    setenv("TUTTI_LANES", "3", 1);
    CHECK(read_config().channels == 3);
    setenv("TUTTI_CHANNELS", "2", 1);
    CHECK(read_config().channels == 2);
    unsetenv("TUTTI_LANES");
    unsetenv("TUTTI_CHANNELS");
    CHECK(read_config().channels == 0);
}

TEST_CASE("how packets over InfiniBand go: Tutti's variables, for want of them NCCL's, within their limits") {
    struct Row {
        const char *own, *nccls;
        int Config::*value;
        int usual, taken;  // where neither is set; for 5
        const char *too_much, *nccls_too_much;
    };
    for (const Row& row : {Row{"TUTTI_IB_TC", "NCCL_IB_TC", &Config::ib_traffic_class, 0, 5, "256", "-1"},
                           Row{"TUTTI_IB_SL", "NCCL_IB_SL", &Config::ib_service_level, 0, 5, "16", "16"},
                           Row{"TUTTI_IB_PKEY", "NCCL_IB_PKEY", &Config::ib_pkey_index, 0, 5, "65536", "-1"},
                           Row{"TUTTI_IB_TIMEOUT", "NCCL_IB_TIMEOUT", &Config::ib_timeout, -1, 5, "0", "23"},
                           Row{"TUTTI_IB_RETRY_CNT", "NCCL_IB_RETRY_CNT", &Config::ib_retry_count, 6, 5, "8", "8"},
                           Row{"TUTTI_IB_QPS_PER_CONNECTION", "NCCL_IB_QPS_PER_CONNECTION",
                               &Config::ib_qps_per_connection, 1, 5, "9", "129"}}) {
        CAPTURE(row.own);
        CHECK(read_config().*row.value == row.usual);
        setenv(row.nccls, "5", 1);
        CHECK(read_config().*row.value == row.taken);
        setenv(row.own, "2", 1);
        CHECK(read_config().*row.value == 2);
        setenv(row.own, row.too_much, 1);
        CHECK_THROWS_WITH(read_config(), Catch::Matchers::Contains(std::string("variable ") + row.own + " is"));
        unsetenv(row.own);
        setenv(row.nccls, row.nccls_too_much, 1);
        CHECK_THROWS_WITH(read_config(), Catch::Matchers::Contains(std::string("variable ") + row.nccls + " is"));
        unsetenv(row.nccls);
    }
    setenv("NCCL_IB_QPS_PER_CONNECTION", "16", 1);
    CHECK(read_config().ib_qps_per_connection == 8);
    unsetenv("NCCL_IB_QPS_PER_CONNECTION");
    CHECK(read_config().ib_relaxed_ordering);
    setenv("NCCL_IB_PCI_RELAXED_ORDERING", "0", 1);
    CHECK_FALSE(read_config().ib_relaxed_ordering);
    setenv("TUTTI_IB_PCI_RELAXED_ORDERING", "1", 1);
    CHECK(read_config().ib_relaxed_ordering);
    unsetenv("TUTTI_IB_PCI_RELAXED_ORDERING");
    unsetenv("NCCL_IB_PCI_RELAXED_ORDERING");
}

TEST_CASE("copy engines are asked for by number, for want of it in NCCL's words") {
    CHECK_FALSE(read_config().zero_cta);
    for (const char* asks : {"2", "3", "ZERO", "NCCL_CTA_POLICY_ZERO", "EFFICIENCY|ZERO"}) {
        setenv("NCCL_CTA_POLICY", asks, 1);
        CHECK(read_config().zero_cta);
        setenv("TUTTI_CTA_POLICY", "1", 1);
        CHECK_FALSE(read_config().zero_cta);
        unsetenv("TUTTI_CTA_POLICY");
    }
    for (const char* other : {"0", "1", "DEFAULT", "EFFICIENCY", "what"}) {
        setenv("NCCL_CTA_POLICY", other, 1);
        CHECK_FALSE(read_config().zero_cta);
    }
    setenv("TUTTI_CTA_POLICY", "2", 1);
    CHECK(read_config().zero_cta);
    setenv("TUTTI_CTA_POLICY", "3", 1);
    CHECK_THROWS_AS(read_config(), Error);
    unsetenv("TUTTI_CTA_POLICY");
    unsetenv("NCCL_CTA_POLICY");
}

namespace {

/// What config() says of GPUDirect where these three, and no other, are set.
Config gpu_direct(const char* own, const char* level, const char* read) {
    const std::pair<const char*, const char*> variables[] = {
        {"TUTTI_NET_GDR", own}, {"NCCL_NET_GDR_LEVEL", level}, {"NCCL_NET_GDR_READ", read}};
    struct Unset {
        ~Unset() {
            for (const char* name : {"TUTTI_NET_GDR", "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ"}) unsetenv(name);
        }
    } afterwards;
    for (const auto& [name, value] : variables)
        if (value != nullptr) setenv(name, value, 1);
    return read_config();
}

}  // namespace

TEST_CASE("whether adapters may use GPU memory: Tutti's switch, for want of it NCCL's level; and NCCL's for reading") {
    CHECK(gpu_direct(nullptr, nullptr, nullptr).gdr);
    CHECK(gpu_direct(nullptr, nullptr, nullptr).gdr_reads);
    CHECK(gpu_direct("1", nullptr, nullptr).gdr);
    CHECK_FALSE(gpu_direct("0", nullptr, nullptr).gdr);
    for (const char* never : {"LOC", "0"}) {
        CHECK_FALSE(gpu_direct(nullptr, never, nullptr).gdr);
        CHECK_FALSE(gpu_direct("", never, nullptr).gdr);  // empty is unset
        CHECK(gpu_direct("1", never, nullptr).gdr);
    }
    for (const char* some : {"", "PIX", "PXB", "PHB", "SYS", "1", "5", "loc"}) {
        CHECK(gpu_direct(nullptr, some, nullptr).gdr);
        CHECK_FALSE(gpu_direct("0", some, nullptr).gdr);
    }
    CHECK_FALSE(gpu_direct(nullptr, nullptr, "0").gdr_reads);
    CHECK(gpu_direct(nullptr, nullptr, "0").gdr);  // what arrives may still be written there
    CHECK(gpu_direct("0", "LOC", "1").gdr_reads);
    for (const std::string wrong : {"2", "-1", "on", "1x", "0.5"}) {
        const std::string rest = " is '" + wrong + "'; a whole number from 0 to 1 was expected";
        CHECK_THROWS_WITH(gpu_direct(wrong.c_str(), nullptr, nullptr), "environment variable TUTTI_NET_GDR" + rest);
        CHECK_THROWS_WITH(gpu_direct(nullptr, nullptr, wrong.c_str()), "environment variable NCCL_NET_GDR_READ" + rest);
    }
}

TEST_CASE("the cores of a caller are told on machines that have more than a fixed set has room for") {
    const std::vector<int> here = cores_of_caller();
    REQUIRE_FALSE(here.empty());
    const auto large = [](pid_t, std::size_t bytes, cpu_set_t* set) {  // as a kernel for 4096 cores does
        if (bytes < 4096 / 8) return errno = EINVAL, -1;
        for (const std::size_t core : {0, 1023, 1024, 4095}) CPU_SET_S(core, bytes, set);
        return 0;
    };
    CHECK(cores_of_caller(large) == std::vector{0, 1023, 1024, 4095});
    CHECK(cores_of_caller([](pid_t, std::size_t, cpu_set_t*) { return errno = EPERM, -1; }).empty());
    CHECK(cores_of_caller([](pid_t, std::size_t, cpu_set_t*) { return errno = EINVAL, -1; }).empty());
}

TEST_CASE("identities of host and randomness") {
    REQUIRE(host_id() == host_id());
    std::uint64_t a = 0, b = 0;
    random_bytes(&a, sizeof a);
    random_bytes(&b, sizeof b);
    REQUIRE(a != b);
    if (allow_fences()) REQUIRE(fence_all_cores());
}
