// Where ranks sit on machines that are not here, and the rings that follow from it.
#include "topology/placement.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "harness/catch.hpp"

using namespace tutti;

namespace {

std::vector<Seat> seats_on(const Part& machine, std::vector<int> core_of) {
    std::vector<Seat> seats;
    for (const int core : core_of) seats.push_back({1, place_of(machine, std::span(&core, 1))});
    return seats;
}

}  // namespace

TEST_CASE("near cores have near places") {
    const Part machine = discover("package:2 core:2 pu:2");  // PUs 0 to 7
    const auto place = [&](std::vector<int> cores) { return place_of(machine, cores); };
    CHECK(place({0}) >= 0);
    CHECK(place({0}) < place({1}));
    CHECK(place({3}) < place({4}));
    CHECK(place({4, 5, 6, 7}) == place({4}));
    CHECK(place({7, 2}) == place({2}));
    CHECK(place({99}) == -1);
    CHECK(place({}) == -1);
}

TEST_CASE("a ring visits one package after the other, and unbound ranks last") {
    const Part machine = discover("package:2 numa:1 core:4 pu:1");
    CHECK(ring_order(seats_on(machine, {0, 4, 2, 6, 99})) == std::vector<Rank>{0, 2, 1, 3, 4});
    CHECK(ring_order(seats_on(machine, {5, 99, 0})) == std::vector<Rank>{2, 0, 1});
    CHECK(ring_order(seats_on(machine, {1, 1, 0, 0})) == std::vector<Rank>{2, 3, 0, 1});
}

TEST_CASE("where ranks are in order already, nothing is reordered") {
    const Part machine = discover("package:2 core:4 pu:1");
    CHECK(ring_order(seats_on(machine, {0, 1, 2, 3, 4, 5, 6, 7})).empty());
    CHECK(ring_order(std::vector<Seat>(6)).empty());
    CHECK(ring_order({}).empty());
}

TEST_CASE("a ring visits one host after the other") {
    // Dealt in turn to 3 hosts, as `mpirun --map-by node` does; on the second one, ranks are bound the other way round.
    const std::vector<Seat> seats = {{70, 1}, {30, 9}, {50, 1}, {70, 2}, {30, 4}, {50, 2}};
    CHECK(ring_order(seats) == std::vector<Rank>{0, 3, 4, 1, 2, 5});
}

TEST_CASE("GPUs of one package are neighbours") {
    // Two packages with 4 GPUs each; their PCI addresses are interleaved, as are the numbers that CUDA gives them.
    const Part machine = discover(TUTTI_TEST_FILES "/eight_gpus.xml");
    std::vector<Seat> seats;
    for (const char* address : {"0000:07:00.0", "0000:87:00.0", "0000:0f:00.0", "0000:90:00.0", "0000:47:00.0",
                                "0000:b7:00.0", "0000:4e:00.0", "0000:bd:00.0"})
        seats.push_back({1, place_of(machine, address)});
    for (const Seat& seat : seats) CHECK(seat.place >= 0);
    CHECK(ring_order(seats) == std::vector<Rank>{0, 2, 4, 6, 1, 3, 5, 7});
    CHECK(place_of(machine, "0000:ff:00.0") == -1);
}

TEST_CASE("cores are alike where they have one memory and one last cache") {
    namespace fs = std::filesystem;
    const fs::path root = fs::temp_directory_path() / ("tutti-cores-" + std::to_string(getpid()));
    const auto write = [&](const char* name, const char* text) {
        fs::create_directories((root / name).parent_path());
        std::ofstream(root / name) << text << '\n';
    };
    CHECK(!cores_are_alike(root));  // nothing is known
    write("node/online", "0");
    write("cpu/smt/active", "0");
    write("cpu/online", "0-7");
    write("cpu/cpu0/cache/index0/shared_cpu_list", "0");
    write("cpu/cpu0/cache/index1/shared_cpu_list", "0-7");
    CHECK(cores_are_alike(root));
    write("cpu/cpu0/cache/index1/shared_cpu_list", "0-3");
    CHECK(!cores_are_alike(root));
    write("cpu/cpu0/cache/index1/shared_cpu_list", "0-7");
    write("cpu/smt/active", "1");
    CHECK(!cores_are_alike(root));
    write("cpu/smt/active", "0");
    write("node/online", "0-1");
    CHECK(!cores_are_alike(root));
    fs::remove_all(root);
}

TEST_CASE("each core knows the memory that is nearest to it") {
    const auto memories = memories_of(discover("package:2 numa:2 core:2 pu:2"));
    REQUIRE(memories.size() == 16);
    for (const auto& [core, its] : memories) CHECK(its == std::vector<int>{core / 4});
    const auto one = memories_of(discover("package:1 core:2 pu:1"));
    REQUIRE(one.size() == 2);
    CHECK(one.at(0) == one.at(1));
}

TEST_CASE("the caller's seat is on this host") {
    const Seat seat = seat_of_caller("");
    CHECK(seat.host != 0);
    CHECK(seat_of_caller("ffff:ff:1f.7").place == -1);
}
