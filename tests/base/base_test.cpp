// The room everything stands on: memory, waiting, texts, the table of variables.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "base/config.hpp"
#include "base/os.hpp"
#include "base/result.hpp"
#include "base/types.hpp"
#include "harness/catch.hpp"

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

TEST_CASE("a file is read whole, or named") {
    const std::string boot_id = read_file("/proc/sys/kernel/random/boot_id");
    CHECK(boot_id.size() == 37);
    CHECK(boot_id.back() == '\n');
    CHECK(read_file("/proc/self/exe").size() > 100'000);
    CHECK(read_file("/dev/null").empty());
    CHECK_THROWS_WITH(read_file("/does/not/exist"),
                      "the file /does/not/exist can't be read: No such file or directory");
    CHECK_THROWS_WITH(read_file("/proc"), "the file /proc can't be read: Is a directory");
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

TEST_CASE("identities of host and randomness") {
    REQUIRE(host_id() == host_id());
    std::uint64_t a = 0, b = 0;
    random_bytes(&a, sizeof a);
    random_bytes(&b, sizeof b);
    REQUIRE(a != b);
    REQUIRE(usable_cores() >= 1);
    if (allow_fences()) REQUIRE(fence_all_cores());
}
