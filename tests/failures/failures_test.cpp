// Everything that can fail fails, one thing after the other, in every operation. What must come of it: walk.hpp.
#include <new>
#include <thread>

#include "base/result.hpp"
#include "harness/catch.hpp"
#include "plan/tuner.hpp"
#include "transport/net_plugins.hpp"
#include "transport/plugin/plugin.hpp"
#include "walk.hpp"

using namespace tutti::failing;

namespace {

// How many callers tell one place from another in the runs of every day: enough to tell most functions apart.
constexpr int shallow = 6;

void walk_through(const std::vector<Operation>& all, Walk how) {
    for (const Operation& operation : all) {
        INFO(operation.name << ", " << name_of(how.kind));
        try {
            CHECK(walk(operation, how) >= 0);
        } catch (const std::exception& error) {
            FAIL_CHECK(error.what());
        }
    }
}

}  // namespace

TEST_CASE("no memory is an error that says so, and leaves nothing behind") {
    walk_through(operations({"all_reduce", "two sums on a stream"}),
                 {Way::local, 2, Kind::memory, When::new_place, shallow});
    walk_through(operations({"all_reduce", "init"}), {Way::shm, 2, Kind::memory, When::new_place, shallow});
}

TEST_CASE("no memory in the background, for one rank or for all in a process leaves nothing behind") {
    walk_through(operations({"init of one rank", "init of all"}), {Way::local, 1, Kind::memory, When::new_place, 3});
    walk_through(operations({"init in the background"}), {Way::shm, 2, Kind::memory, When::new_place, 3});
}

TEST_CASE("a communicator for which there was no memory to be shrunk or suspended leaves nothing behind") {
    walk_through(operations({"shrink", "suspend and resume"}), {Way::shm, 2, Kind::memory, When::new_place, 2});
}

TEST_CASE("no descriptor, no room for a map and no thread are errors that say so, and leave nothing behind") {
    for (const Kind kind : {Kind::descriptors, Kind::maps, Kind::threads})
        walk_through(operations({"a sum in mapped memory", "two sums on a stream", "split", "shrink",
                                 "suspend and resume", "init", "init in the background", "init of all"}),
                     {Way::shm, 2, kind, When::new_place, shallow});
}

TEST_CASE("what is interrupted, in pieces or has to wait for room goes on") {
    const auto some = operations({"all_reduce", "a group of collectives and messages", "init"});
    for (const Kind kind : {Kind::interrupted, Kind::unfenced})
        for (const Way way : {Way::shm, Way::tcp}) walk_through(some, {way, 2, kind, When::every_other});
    // Not on TCP sockets: what is read or written in part there has no more, or no more room (see epoll(7)).
    for (const Kind kind : {Kind::in_pieces, Kind::full}) walk_through(some, {Way::shm, 2, kind, When::every_other});
}

TEST_CASE("no socket that can be made ready, and connections that are reset, are errors that say so") {
    for (const Way way : {Way::shm, Way::tcp})
        walk_through(operations({"init"}), {way, 2, Kind::sockets, When::new_place, shallow});
    walk_through(operations({"all_reduce"}), {Way::tcp, 2, Kind::connections, When::new_place, shallow});
    for (const Way way : {Way::shm, Way::tcp})  // while ranks join
        walk_through(operations({"init", "split", "shrink"}), {way, 2, Kind::connections, When::new_place, shallow});
}

TEST_CASE("a disk that is full or fails loses no checkpoint and no file of tutti-tune") {
    walk_through(operations({"a checkpoint", "a tuning file"}), {Way::shm, 2, Kind::files});
}

TEST_CASE("no memory for a checkpoint is an error that says so, and leaves nothing behind") {
    walk_through(operations({"a checkpoint"}), {Way::local, 2, Kind::memory, When::new_place, 2});
}

TEST_CASE("no memory for parameter servers is an error that says so, and leaves nothing behind") {
    walk_through(operations({"parameter servers"}), {Way::shm, 2, Kind::memory, When::new_place, 2});
}

TEST_CASE("no memory for a tuning file is an error that says so, and leaves nothing behind") {
    walk_through(operations({"a tuning file"}), {Way::local, 2, Kind::memory});
}

TEST_CASE("no memory for a network plugin's context is an error, and the context is given back") {
    const auto plugin = tutti::plugin::load(NET_PLUGIN_11);
    watch(60);
    long n = 0;
    for (bool failed = true; failed; ++n) {
        bool thrown = false;
        arm(Kind::memory, When::once, n);
        try {
            plugin->context();
        } catch (const std::bad_alloc&) {
            thrown = true;
        }
        failed = disarm().failed > 0;
        CHECK(thrown == failed);
        CHECK(nothing_stays());
    }
    CHECK(n > 3);
    watch(0);
}

TEST_CASE("a tuner that was short of memory decides later as the tuners of other ranks") {
    using namespace tutti;
    using failing::Kind;
    const OfTheTest mine;
    const auto measured = std::make_shared<Tuning>();
    for (const char* name : {"ring", "direct", "tree"})
        for (const std::size_t bytes : {8u, 4096u, 1u << 20})
            measured->add(Collective::all_reduce, name, "shm", 4, {bytes, 10});
    const Platform platform = host_platform(4, 2, 32 << 20, 1 << 20, {&shm_transport()});
    const Question question{Collective::all_reduce, 1 << 20};
    Tuner other(platform, {}, false, measured);
    const Candidate expected = other.choose(question);
    forget_places();
    for (bool failed = true; failed;) {
        Tuner tuner(platform, {}, false, measured);
        arm(Kind::memory, When::new_place, 0, shallow);
        std::thread([&] { guarded([&] { tuner.choose(question); }); }).join();
        failed = disarm().failed > 0;
        INFO(where());
        const Candidate& chosen = tuner.choose(question);
        REQUIRE((chosen.algorithm == expected.algorithm && chosen.time == expected.time));
    }
}

TEST_CASE("no memory, descriptor, map or thread at every place of many operations", "[.][full]") {
    const auto most =
        operations({"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "gather",
                    "scatter", "barrier", "all_gatherv", "a group of collectives and messages", "two sums on a stream",
                    "a sum of scaled numbers", "a sum in mapped memory", "split", "init"});
    for (const Kind kind : {Kind::memory, Kind::descriptors, Kind::maps, Kind::threads})
        walk_through(most, {Way::shm, 2, kind});
}

TEST_CASE("no memory as communicators are shrunk, suspended or made in the background", "[.][full]") {
    walk_through(operations({"init of one rank"}), {Way::local, 1, Kind::memory, When::new_place, shallow});
    walk_through(operations({"shrink", "suspend and resume", "init in the background", "init of all"}),
                 {Way::shm, 2, Kind::memory, When::new_place, shallow});
}

TEST_CASE("no memory for windows, more ranks, layers and checkpoints", "[.][full]") {
    walk_through(operations({"a window, a put and a get", "grow", "steps of a layer", "steps of a layer that shards",
                             "steps behind a server", "a checkpoint"}),
                 {Way::shm, 2, Kind::memory, When::new_place, shallow});
}

TEST_CASE("no memory while a layer moves to other communicators", "[.][full]") {
    walk_through(operations({"a move of a layer that shards"}), {Way::shm, 2, Kind::memory, When::new_place, shallow});
}
