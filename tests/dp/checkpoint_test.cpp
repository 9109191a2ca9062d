// Checkpoints: saved by some ranks in some mode, loaded by others in another; torn and foreign ones are refused.
#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/result.hpp"
#include "dp/hash.hpp"
#include "dp/saved.hpp"
#include "dp/training.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"

using namespace tutti;
using harness::Setup;
using harness::Trained;

namespace {

/// A folder that goes with its files.
struct Folder {
    Folder() {
        char name[] = "/tmp/tutti-dp-XXXXXX";
        REQUIRE(mkdtemp(name) != nullptr);
        path = name;
    }
    ~Folder() {
        for (const std::string& file : files()) unlink((path + "/" + file).c_str());
        rmdir(path.c_str());
    }
    std::vector<std::string> files() const {
        std::vector<std::string> all;
        DIR* folder = opendir(path.c_str());
        while (const dirent* entry = readdir(folder))
            if (entry->d_name[0] != '.') all.push_back(entry->d_name);
        closedir(folder);
        return all;
    }
    std::string part() const {  // one that has something in it
        for (const std::string& file : files())
            if (file.find("of") != std::string::npos && read(path + "/" + file).size() > 100) return path + "/" + file;
        return "";
    }
    static std::string read(const std::string& file) {
        std::ostringstream all;
        all << std::ifstream(file, std::ios::binary).rdbuf();
        return all.str();
    }
    static void write(const std::string& file, const std::string& content) {
        std::ofstream(file, std::ios::binary) << content;
    }
    std::string path;
};

Setup setup_of(tuttiDpMode_t mode, int ranks) {
    Setup setup;
    setup.ranks = ranks;
    setup.steps = 6;
    setup.config = harness::config_for(mode);
    return setup;
}

bool says(const char* word) {
    return std::string(tuttiGetLastError(nullptr)).find(word) != std::string::npos;
}

}  // namespace

TEST_CASE("what any ranks have saved any ranks go on with, in any mode, with the same bits") {
    const Trained through = harness::train(setup_of(tuttiDpBucketed, 3));
    const struct {
        tuttiDpMode_t saves, loads;
        int staleness;
    } cases[] = {{tuttiDpZero1, tuttiDpBucketed, TUTTI_UNDEF_INT},
                 {tuttiDpBucketed, tuttiDpZero3, TUTTI_UNDEF_INT},
                 {tuttiDpZero3, tuttiDpServer, TUTTI_UNDEF_INT},
                 {tuttiDpShardedServer, tuttiDpShardedServer, 0}};
    for (const auto& c : cases) {
        CAPTURE(c.saves, c.loads);
        Folder folder;
        const std::string path = folder.path + "/checkpoint";
        Setup first = setup_of(c.saves, 2);  // saved by two, loaded by three
        first.slices = 12;
        first.steps = 3;
        first.after = [&](int, int step, tuttiDp_t dp) {
            if (step != 0)
                harness::must_succeed(tuttiDpSave(dp, path.c_str()), "save");  // the second replaces the first
        };
        const Trained saved = harness::train(first);
        REQUIRE(folder.files().size() == 3);  // the text and two parts; nothing else is left
        Setup second = setup_of(c.loads, 3);
        second.config.staleness = c.staleness;
        second.steps = 4;
        second.after = [&](int, int step, tuttiDp_t dp) {
            if (step == 0) harness::must_succeed(tuttiDpLoad(dp, path.c_str()), "load");  // undoes its own step
        };
        const Trained resumed = harness::train(second);
        REQUIRE(resumed.statistics[0].steps == 6);
        REQUIRE(harness::difference(resumed, through) < 2e-4);  // two ranks add in another order than three
        first.ranks = 3;
        harness::train(first);
        const Trained same = harness::train(second);
        REQUIRE(same.weights == through.weights);
    }
}

TEST_CASE("a checkpoint keeps the scale of losses, and how long it has held") {
    Folder folder;
    const std::string path = folder.path + "/checkpoint";
    Setup setup = setup_of(tuttiDpZero1, 2);
    setup.config.lossScale = 4;
    setup.config.lossScaleWindow = 4;
    setup.after = [&](int, int step, tuttiDp_t dp) {
        if (step == 5) harness::must_succeed(tuttiDpSave(dp, path.c_str()), "save");
    };
    harness::train(setup);  // 6 steps: 8 since the fourth
    const auto expect = [](tuttiDp_t dp, double expected) {
        double scale = 0;
        harness::must_succeed(tuttiDpGetLossScale(dp, &scale, nullptr), "scale");
        harness::check(scale == expected, "the scale is " + std::to_string(scale));
    };
    setup.ranks = 3;
    setup.config.mode = tuttiDpBucketed;
    setup.created = [&](int, tuttiDp_t dp) {
        harness::must_succeed(tuttiDpLoad(dp, path.c_str()), "load");
        expect(dp, 8);
    };
    setup.steps = 3;
    setup.after = [&](int, int step, tuttiDp_t dp) { expect(dp, step == 0 ? 8 : 16); };
    harness::train(setup);
}

TEST_CASE("torn, changed, incomplete and foreign checkpoints are refused on all ranks, and nothing changes") {
    Folder folder;
    const std::string path = folder.path + "/checkpoint";
    Setup setup = setup_of(tuttiDpZero2, 2);
    setup.steps = 2;
    setup.after = [&](int, int step, tuttiDp_t dp) {
        if (step == 0) harness::must_succeed(tuttiDpSave(dp, path.c_str()), "save");
    };
    const Trained plain = harness::train(setup);
    const std::string text = Folder::read(path), part = folder.part(), content = Folder::read(part);
    REQUIRE(!content.empty());
    const auto refused = [&](const char* word, Setup other) {
        other.after = [&](int, int step, tuttiDp_t dp) {
            if (step == 0)
                harness::check(tuttiDpLoad(dp, path.c_str()) != tuttiSuccess && says(word), tuttiGetLastError(nullptr));
        };
        const Trained unchanged = harness::train(other);
        other.after = nullptr;
        return unchanged.weights == harness::train(other).weights;
    };
    Folder::write(part, content.substr(0, content.size() / 2));
    REQUIRE(refused("torn", setup));
    std::string flipped = content;
    flipped[content.size() / 3] ^= 1;
    Folder::write(part, flipped);
    REQUIRE(refused("torn or was changed", setup));
    unlink(part.c_str());
    REQUIRE(refused("of2", setup));
    Folder::write(part, content);
    Folder::write(path, text.substr(0, text.size() - 9));
    REQUIRE(refused("torn", setup));
    Folder::write(path, "something else\n");
    REQUIRE(refused("no checkpoint", setup));
    Folder::write(path, text);
    Setup other = setup;
    other.counts[2] += 1;
    REQUIRE(refused("parameter 2 is '34 w2'", other));
    other = setup;
    other.counts.pop_back();
    REQUIRE(refused("parameter 7 is 'none'", other));
    other = setup;
    other.config.optimizer.kind = tuttiDpSgd;
    REQUIRE(refused("states", other));
    other = setup;
    other.type = tuttiFloat64;
    REQUIRE(refused("types", other));
    // The old one outlives a save that fails.
    other = setup;
    other.after = [&](int, int, tuttiDp_t dp) {
        harness::check(tuttiDpSave(dp, "/no/such/folder/checkpoint") == tuttiInvalidUsage && says("/no/such"), "saved");
        harness::must_succeed(tuttiDpLoad(dp, path.c_str()), "the old one is whole");
    };
    harness::train(other);
    REQUIRE(Folder::read(path) == text);
}

TEST_CASE("elements that a part has twice do not make up for those that are missing") {
    const std::vector<dp::Piece> pieces{{0, 0, 4, 0}};
    dp::Restored restored;
    restored.values.resize(4);
    const dp::Destination to{&pieces, 1, &restored};
    const auto part = [](std::uint64_t first, std::uint64_t count, const std::string& numbers) {
        const dp::Record record{0, first, count, 1, 0};
        return std::string(reinterpret_cast<const char*>(&record), sizeof record) + numbers;
    };
    dp::read_part(part(0, 2, "ab") + part(0, 2, "ab"), "part", 0, {&to, 1});
    CHECK(restored.covered() == 2);
    dp::read_part(part(1, 3, "BCD"), "part", 0, {&to, 1});
    CHECK(restored.covered() == 4);
    CHECK(std::memcmp(restored.values.data(), "aBCD", 4) == 0);
    for (const std::string& bad : {part(0, 3, "ab"), part(~0ull, 2, "ab"), part(0, ~0ull, "ab"), part(0, 2, "abc")})
        CHECK_THROWS_AS(dp::read_part(bad, "part", 0, {&to, 1}), Error);
}

TEST_CASE("a checkpoint's text says on which line it is not what was expected") {
    const auto refusal = [](const std::string& lines) -> std::string {
        const std::string all = "tutti-checkpoint 1\n" + lines;
        try {
            dp::manifest_from(all + text("end %016llx\n", static_cast<unsigned long long>(dp::hash(all))), "c");
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    const std::string head = "number ab\nranks 1\nstep 7\nstates 2\nparameter 3 w\n";
    CHECK(refusal(head + "updates 0 5\npart 9 ff\n") == "");
    CHECK(refusal("ranks 1\n").find("line 2: 'number' was expected") != std::string::npos);
    CHECK(refusal("number ab\nranks 0\n").find("line 3: a number from 1 to") != std::string::npos);
    CHECK(refusal("number ab\nranks 1\nstep 7x\n").find("line 4") != std::string::npos);
    CHECK(refusal(head + "updates 1 5\npart 9 ff\n").find("line 7: there is no parameter") != std::string::npos);
    CHECK(refusal(head + "part 9 ff\nparameter 1 v\n").find("line 7") != std::string::npos);
    CHECK(refusal(head).find("0 parts for 1 ranks") != std::string::npos);
}
