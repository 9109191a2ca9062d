// Algorithms that users bring in files.
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "algorithms/prove.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"
#include "plan/machine.hpp"
#include "plan/tuner.hpp"
#include "schedule/json.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

/// A folder for files, as long as the test runs.
class Folder {
  public:
    Folder() : path_(std::filesystem::temp_directory_path() / ("tutti-programs-" + std::to_string(getpid()))) {
        std::filesystem::create_directories(path_);
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    Folder(const Folder&) = delete;

    std::string write(const std::string& name, const std::string& content) const {
        std::ofstream(path_ / name) << content;
        return path_ / name;
    }

  private:
    std::filesystem::path path_;
};

ProgramFile exported(const char* algorithm, const std::string& name, std::initializer_list<Collective> ops, int ranks) {
    ProgramFile file{name, "", {}, "", 0};
    for (const Collective c : ops)
        for (Rank root = 0; root < (has_root(c) ? ranks : 1); ++root)
            file.sets.push_back({c, ranks, root, all_programs(*find_algorithm(algorithm), c, ranks, root), 0, {}, {}});
    return file;
}

/// Root 0 of 3 adds rank 2's part before rank 1's, which no algorithm of the table does.
ProgramSet backwards(Collective c) {
    ProgramSet set{c, 3, 0, {}, 0, {}, {}};
    const bool all = c == Collective::all_reduce;
    for (Rank r = 0; r < 3; ++r) set.programs.push_back(program_for({c, r, 3, 0}));
    if (all)
        set.programs[0].step({input(0), recv(2), recv(1)}, {output(0), send(1), send(2)}, true);
    else
        set.programs[0].step({input(0), recv(2), recv(1)}, {output(0)}, true);
    for (const Rank r : {1, 2}) {
        set.programs[static_cast<std::size_t>(r)].step({input(0)}, {send(0)});
        if (all) set.programs[static_cast<std::size_t>(r)].step({recv(0)}, {output(0)});
    }
    return set;
}

/// The result of tuttiCommInitRankConfig on each of `ranks`, and its error text.
struct Joined {
    std::vector<tuttiComm_t> comms;
    std::vector<tuttiResult_t> results;
    std::vector<std::string> errors;

    Joined(int ranks, const std::function<void(int, tuttiConfig_t&)>& configure)
        : comms(static_cast<std::size_t>(ranks)), results(comms.size()), errors(comms.size()) {
        const tuttiUniqueId id = new_id();
        harness::run(ranks, [&](int rank) {
            const auto r = static_cast<std::size_t>(rank);
            tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
            config.initTimeoutMs = 20000;
            configure(rank, config);
            results[r] = tuttiCommInitRankConfig(&comms[r], ranks, id, rank, &config);
            if (results[r] != tuttiSuccess) errors[r] = tuttiGetLastError(nullptr);
        });
    }
    ~Joined() {
        for (std::size_t r = 0; r < comms.size(); ++r)
            if (results[r] == tuttiSuccess) tuttiCommDestroy(comms[r]);
    }
    Joined(const Joined&) = delete;

    /// The sum on rank 0 of 1e8, 1 and -1e8, which tells the order: 0 + 1 + 2 gives 0, 0 + 2 + 1 gives 1.
    float sum(bool to_all, int root = 0) {
        std::atomic<float> result = -1;
        harness::run(3, [&](int rank) {
            const float mine[] = {1e8f, 1, -1e8f};
            float out = 0;
            tuttiComm_t comm = comms[static_cast<std::size_t>(rank)];
            harness::must_succeed(to_all
                                      ? tuttiAllReduce(&mine[rank], &out, 1, tuttiFloat32, tuttiSum, comm, nullptr)
                                      : tuttiReduce(&mine[rank], &out, 1, tuttiFloat32, tuttiSum, root, comm, nullptr),
                                  "sum");
            if (rank == root) result = out;
        });
        return result;
    }
};

std::string replaced(std::string text, const std::string& old, const std::string& by) {
    return text.replace(text.find(old), old.size(), by);
}

}  // namespace

TEST_CASE("an exported ring is loaded by its new name and gives right results") {
    const Folder folder;
    using enum Collective;
    const std::string path =
        folder.write("ring.json", json_of(exported("ring", "my_ring", {all_reduce, reduce_scatter, broadcast}, 3)));
    Joined joined(3, [&](int, tuttiConfig_t& config) {
        config.programs = path.c_str();
        config.algorithm = "my_ring";
    });
    REQUIRE(joined.errors == std::vector<std::string>(3));
    std::vector<Case> cases;
    for (const Case::What what : {Case::What::all_reduce, Case::What::reduce_scatter, Case::What::broadcast,
                                  Case::What::all_gather, Case::What::all_to_all})
        for (const std::size_t count : {1, 13, 1025, 30011, 300007}) {
            if (harness::sanitized && count > 100'000) continue;
            for (const Where where : {Where::out_of_place, Where::in_place})
                for (const int root : {0, 2})
                    if (what != Case::What::all_to_all || where == Where::out_of_place)
                        cases.push_back({what, count, tuttiFloat32, tuttiAvg, root, where, count > 10000});
        }
    REQUIRE_NOTHROW(harness::run(3, [&](int rank) {
        for (const Case& c : cases) harness::run_case(c, joined.comms[static_cast<std::size_t>(rank)], rank, 3);
    }));
}

TEST_CASE("it is the user's programs that run, where they are asked for and fit") {
    const Folder folder;
    const std::string path = folder.write(
        "b.json",
        json_of({"backwards", "", {backwards(Collective::all_reduce), backwards(Collective::reduce)}, "", 0}));
    const auto joined = [&](const char* algorithm, int reproducible = 0) {
        return std::make_unique<Joined>(3, [&, algorithm, reproducible](int, tuttiConfig_t& config) {
            config.programs = path.c_str();
            config.algorithm = algorithm;
            config.reproducible = reproducible;
        });
    };
    const auto asked = joined("backwards");
    CHECK(asked->sum(true) == 1);
    CHECK(asked->sum(false) == 1);
    CHECK(asked->sum(false, 1) == 0);  // the file has no root 1
    CHECK(asked->sum(true) == 1);
    CHECK(joined(nullptr)->sum(true) == 0);
    CHECK(joined("flat")->sum(true) == 0);
    CHECK(joined("backwards", 1)->sum(true) == 0);  // not in rank order
}

// All tiles have the same scratch: what peers are told the place of must not be overwritten by the next tile.
TEST_CASE("what is sent from scratch arrives, over many tiles") {
    const Folder folder;
    ProgramSet set{Collective::all_gather, 3, 0, {}, 0, {}, {}};
    for (Rank r = 0; r < 3; ++r) {
        Program p = program_for({Collective::all_gather, r, 3});
        p.scratch_chunks = 1;
        p.step({input(0)}, {output(r), scratch(0)});
        p.step({scratch(0)}, {send((r + 1) % 3), send((r + 2) % 3)});
        for (const Rank other : {(r + 2) % 3, (r + 1) % 3}) p.step({recv(other)}, {output(other)});
        set.programs.push_back(p);
    }
    const std::string path = folder.write("s.json", json_of({"by_scratch", "", {set}, "", 0}));
    Joined joined(3, [&](int, tuttiConfig_t& config) {
        config.programs = path.c_str();
        config.algorithm = "by_scratch";
    });
    REQUIRE_NOTHROW(harness::run(3, [&](int rank) {
        for (int round = 0; round < (harness::sanitized ? 3 : 10); ++round)
            harness::run_case({Case::What::all_gather, 300007, tuttiFloat32, tuttiSum, 0, Where::out_of_place, true},
                              joined.comms[static_cast<std::size_t>(rank)], rank, 3);
    }));
}

TEST_CASE("user programs in rank order serve reproducible sums") {
    ProgramSet set = backwards(Collective::all_reduce);
    const auto name_of_choice = [&set] {
        const auto own = std::make_shared<UserAlgorithms>(3, static_cast<int>(slot_depth));
        own->add(json_of({"star", "", {set}, "", 0}), "s.json");
        Tuner tuner(machine(3, 3), Allowed::parse("star", own.get()), true, nullptr, own);
        return std::string(tuner.choose({Collective::all_reduce, 4}).algorithm->name);
    };
    CHECK(name_of_choice() != "star");
    std::swap(set.programs[0].operands[1], set.programs[0].operands[2]);
    CHECK(name_of_choice() == "star");

    const Folder folder;
    const std::string path = folder.write("s.json", json_of({"star", "", {set}, "", 0}));
    Joined joined(3, [&](int, tuttiConfig_t& config) {
        config.programs = path.c_str();
        config.reproducible = 1;
        config.algorithm = "star";
    });
    CHECK(joined.sum(true) == 0);
}

TEST_CASE("sets for other numbers of ranks are kept aside, several files may have one name") {
    const Folder folder;
    using enum Collective;
    const std::string three = folder.write("3.json", json_of(exported("ring", "mine", {all_reduce}, 3)));
    const std::string two = folder.write("2.json", json_of(exported("direct", "mine", {all_reduce}, 2)));
    const std::string both = three + ":" + two + ":";
    for (const int ranks : {1, 2, 4}) {
        Joined joined(ranks, [&](int, tuttiConfig_t& config) {
            config.programs = both.c_str();
            config.algorithm = "mine";
        });
        REQUIRE(joined.errors == std::vector<std::string>(static_cast<std::size_t>(ranks)));
        REQUIRE_NOTHROW(harness::run(ranks, [&](int rank) {
            harness::run_case({Case::What::all_reduce, 1000}, joined.comms[static_cast<std::size_t>(rank)], rank,
                              ranks);
        }));
    }
    const std::string twice = two + ":" + folder.write("4.json", json_of(exported("ring", "mine", {all_reduce}, 2)));
    Joined joined(2, [&](int, tuttiConfig_t& config) { config.programs = twice.c_str(); });
    for (const std::string& error : joined.errors)
        CHECK(error.ends_with("4.json:7: another file has all_reduce of 'mine' for 2 ranks, too"));
}

TEST_CASE("ranks that have loaded other files are told so") {
    const Folder folder;
    const std::string json = json_of(exported("ring", "mine", {Collective::all_reduce}, 3));
    const std::string one = folder.write("1.json", json);
    const std::string same = folder.write("2.json", json);
    const std::string other = folder.write("3.json", replaced(json, "\"summary\": \"\"", "\"summary\": \"new\""));
    const auto join = [&](const std::string& of_rank_1) {
        return std::make_unique<Joined>(3, [&, of_rank_1](int rank, tuttiConfig_t& config) {
            config.programs = rank == 1 ? of_rank_1.c_str() : one.c_str();
        });
    };
    CHECK(join(same)->errors == std::vector<std::string>(3));
    for (const bool none : {false, true}) {
        const auto joined = join(none ? "" : other);
        CHECK(joined->results == std::vector<tuttiResult_t>(3, tuttiInvalidUsage));
        const std::string end = ": all ranks must load the same files";
        for (std::size_t r = 0; r < 3; ++r)
            CHECK(joined->errors[r].starts_with(none ? "rank " + std::to_string(r == 1 ? 0 : r) +
                                                           " has loaded algorithms of its own and rank 1 has not" + end
                                                : r == 1 ? "rank 0 has loaded other algorithms than rank 1" + end
                                                         : "rank 1 has loaded other algorithms than rank " +
                                                               std::to_string(r) + end));
    }
}

TEST_CASE("ranks that ask for different algorithms learn it at init") {
    Joined joined(3, [](int rank, tuttiConfig_t& config) { config.algorithm = rank == 1 ? "ring" : nullptr; });
    CHECK(joined.results == std::vector<tuttiResult_t>(3, tuttiInvalidUsage));
    for (const std::string& error : joined.errors) {
        CHECK(error.find("config.algorithm (TUTTI_ALGO)") != std::string::npos);
        CHECK(error.find("rank 1") != std::string::npos);
    }
}

TEST_CASE("what is wrong with a file is an error at init, with its line") {
    const Folder folder;
    const std::string good = json_of(exported("ring", "mine", {Collective::all_reduce}, 3));
    const auto refused = [&](const std::string& path, const char* algorithm = nullptr) {
        Joined joined(3, [&](int, tuttiConfig_t& config) {
            config.programs = path.c_str();
            config.algorithm = algorithm;
        });
        for (std::size_t r = 0; r < 3; ++r) {
            CHECK(joined.results[r] == (path.ends_with(".none") ? tuttiSystemError : tuttiInvalidUsage));
            CHECK(joined.errors[r] == joined.errors[0]);
        }
        return joined.errors[0];
    };
    const std::string wrong = folder.write("wrong.json", replaced(good, "\"recv 2\", \"input 1\"", "\"recv 2\""));
    CHECK(refused(wrong) ==
          wrong +
              ":11: all_reduce of 3 ranks: rank 0, step 2 `{recv 2} -> {out[1], send 1}  completes`: is "
              "said to complete, but has in[1] of 2 ranks, without rank 0's");
    const std::string typed = folder.write("typed.json", replaced(good, "input 2", "input x"));
    CHECK(refused(typed) == typed +
                                ":10: rank 0, step 1: 'input x': input and a chunk's number were expected, as in "
                                "\"input 0\"");
    const std::string named = folder.write("named.json", replaced(good, "mine", "ring"));
    CHECK(refused(named) == named + ":4: 'name': Tutti has an algorithm 'ring' itself; choose another name");
    CHECK(refused("/does/not/exist.none") == "the file /does/not/exist.none can't be read: No such file or directory");
    const std::string fine = folder.write("fine.json", good);
    const std::string unknown = refused(fine, "magic");
    CHECK(unknown.starts_with("there is no algorithm 'magic'; there are: ring, direct, "));
    CHECK(unknown.ends_with(", mine"));
}
