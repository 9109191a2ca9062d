#include "plan/tuning.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/result.hpp"
#include "harness/catch.hpp"

using namespace tutti;

namespace {

Tuning some() {
    Tuning t;
    t.add(Collective::all_reduce, "ring", "shm", 4, {1024, 3.5});
    t.add(Collective::all_reduce, "ring", "shm", 4, {8, 1.25});
    t.add(Collective::broadcast, "flat", "local", 2, {8, 0.5});
    t.add_path("tcp", {12.5, 0.0004});
    return t;
}

std::string refusal(const std::string& json) {
    try {
        Tuning::from_json(json, "t.json", machine_name());
    } catch (const Error& e) {
        CHECK(e.code() == tuttiInvalidUsage);
        return e.what();
    }
    return "";
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
    const std::size_t at = text.find(what);
    REQUIRE(at != std::string::npos);
    return text.replace(at, what.size(), by);
}

}  // namespace

TEST_CASE("measurements are found by what was measured, in ascending order, the last one counts") {
    Tuning t = some();
    const Tuning::Curve* curve = t.find(Collective::all_reduce, "ring", "shm", 4);
    REQUIRE(curve != nullptr);
    CHECK(*curve == Tuning::Curve{{8, 1.25}, {1024, 3.5}});
    t.add(Collective::all_reduce, "ring", "shm", 4, {8, 2});
    CHECK(t.find(Collective::all_reduce, "ring", "shm", 4)->front().time == 2);
    CHECK(t.find(Collective::all_reduce, "ring", "shm", 5) == nullptr);
    CHECK(t.find(Collective::all_reduce, "ring", "local", 4) == nullptr);
    CHECK(t.find(Collective::reduce, "ring", "shm", 4) == nullptr);
}

TEST_CASE("paths between hosts are kept beside what was measured on one, and compared apart from that") {
    Tuning t = some();
    REQUIRE(t.path("tcp") != nullptr);
    CHECK(*t.path("tcp") == Tuning::Path{12.5, 0.0004});
    CHECK(t.path("tcp, far") == nullptr);
    t.add_path("tcp", {13, 0.0004});
    CHECK(t.path("tcp")->latency_us == 13);
    CHECK(t.hash() == some().hash());
    CHECK(t.hash_of_paths() != some().hash_of_paths());
    Tuning moved;
    moved.add_path("tcp", *some().path("tcp"));
    CHECK((moved.empty() && moved.hash() == 0 && moved.hash_of_paths() == some().hash_of_paths()));
    CHECK((Tuning().hash() == 0 && Tuning().hash_of_paths() == 0));
    const Tuning back = Tuning::from_json(moved.to_json(), "t.json", machine_name());
    CHECK((back.empty() && *back.path("tcp") == *moved.path("tcp")));
}

TEST_CASE("a file reads back equal, and only its owner can read it") {
    char directory[] = "/tmp/tutti-tuning-XXXXXX";
    REQUIRE(mkdtemp(directory) != nullptr);
    const std::string path = std::string(directory) + "/deep/er/tuning.json";
    some().write(path);
    const Tuning back = Tuning::read(path);
    CHECK(back.hash() == some().hash());
    CHECK(back.hash() != Tuning().hash());
    CHECK(back.hash_of_paths() == some().hash_of_paths());
    CHECK(back.to_json() == some().to_json());
    struct stat info {};
    REQUIRE(stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);
    // Replaced as a whole: nothing else is left in the directory.
    Tuning().write(path);
    CHECK(Tuning::read(path).empty());
    int files = 0;
    for ([[maybe_unused]] const auto& f : std::filesystem::directory_iterator(std::string(directory) + "/deep/er"))
        ++files;
    CHECK(files == 1);
    std::filesystem::remove_all(directory);
    CHECK_THROWS_AS(some().write("/proc/no/tuning.json"), Error);
    CHECK_THROWS_AS(Tuning::read("/no/such/file"), Error);
}

TEST_CASE("files that are stale, foreign or broken are refused with the reason") {
    const std::string good = some().to_json();
    CHECK(refusal(good) == "");
    CHECK(refusal(replaced(good, "\"version\":1", "\"version\":7")).find("version 7") != std::string::npos);
    CHECK(refusal(replaced(good, machine_name(), "a toaster")).find("toaster") != std::string::npos);
    CHECK(refusal(replaced(good, "tutti-tuning", "tutti")).find("tutti-tune") != std::string::npos);
    CHECK(refusal(replaced(good, "all_reduce", "all_redcue")).find("all_redcue") != std::string::npos);
    for (const char* time : {"-1.25", "0", "1e13", "1e999", "null", "\"1.25\"", "1.25,1"})
        CHECK(refusal(replaced(good, "1.25", time)).find("t.json:2: ") == 0);
    for (const char* bytes : {"-8", "0.5", "1099511627777", "9223372036854775807"})
        CHECK(refusal(replaced(good, "[8,1.25]", "[" + std::string(bytes) + ",1.25]")).find("up to 2^40") !=
              std::string::npos);
    for (const char* ranks : {"-4", "4294967298", "1e300", "4.5", "true", "[[4]]"})
        CHECK(refusal(replaced(good, "\"ranks\":4", std::string("\"ranks\":") + ranks)).find("'ranks'") !=
              std::string::npos);
    CHECK(refusal(replaced(good, "12.5", "1e999")).find("t.json:") == 0);
    for (const char* time : {"-12.5", "0", "1e13", "null", "\"12.5\"", "[12.5]"})
        CHECK(refusal(replaced(good, "12.5", time)).find("'latency_us': a number above 0, and 1e12 at most, was") !=
              std::string::npos);
    CHECK(refusal(replaced(good, "us_per_byte", "gb_per_s")).find("us_per_byte") != std::string::npos);
    CHECK(refusal(replaced(good, ",\"between_hosts\"", ",\"others\"")) == "");  // as files were before
    CHECK(refusal(good.substr(0, good.size() / 2)).find("is not JSON") != std::string::npos);
    CHECK(refusal(replaced(good, "\"version\":1", "\"version\":" + std::string(100000, '['))).find("brackets") !=
          std::string::npos);
    CHECK(refusal("") != "");
    CHECK(refusal("[]") != "");
}

TEST_CASE("a rank's share of the largest cache is all of it for one rank, and less the more ranks share it") {
    const Caches one{.largest = 8 << 20}, four{.largest = 32 << 20, .number = 4};
    CHECK(one.share(1) == 8 << 20);
    CHECK(one.share(8) == 1 << 20);
    CHECK(four.share(4) == 32 << 20);
    CHECK(four.share(5) == 16 << 20);  // two have one together
    CHECK(four.share(64) == 2 << 20);
    const Caches here = Caches::here();
    CHECK(here.largest >= here.of_core);
    CHECK(here.number >= 1);
}
