// Checkpoints: saved by some ranks in some mode, loaded by others in another; torn and foreign ones are refused.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/result.hpp"
#include "dp/on_ranks.hpp"
#include "dp/safetensors.hpp"
#include "dp/saved.hpp"
#include "dp/training.hpp"
#include "harness/catch.hpp"
#include "harness/folder.hpp"
#include "harness/harness.hpp"
#include "harness/skip.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

/// A checkpoint's.
struct Checkpoints : harness::Folder {
    std::vector<std::string> files() const {
        std::vector<std::string> all;
        for (const auto& entry : std::filesystem::directory_iterator(path)) all.push_back(entry.path().filename());
        return all;
    }
    /// The path of the first part of this kind, "model" or "optimizer".
    std::string part(const std::string& kind) const {
        std::vector<std::string> all;
        for (const std::string& file : files())
            if (file.starts_with(kind + "-")) all.push_back(path + "/" + file);
        REQUIRE(!all.empty());
        return *std::ranges::min_element(all);
    }
    std::string index() const { return path + "/" + dp::index_name; }
    static std::string read(const std::string& file) {
        std::ostringstream all;
        all << std::ifstream(file, std::ios::binary).rdbuf();
        return all.str();
    }
    static void write(const std::string& file, const std::string& content) {
        std::ofstream(file, std::ios::binary) << content;
    }
};

Setup setup_of(tuttiDpMode_t mode, int ranks) {
    Setup setup;
    setup.ranks = ranks;
    setup.steps = 6;
    setup.config = harness::config_for(mode);
    return setup;
}

/// The fp32 tensors of a file; none if it is no safetensors file.
std::map<std::string, std::vector<float>> tensors_in(const std::string& file) {
    std::map<std::string, std::vector<float>> all;
    if (!file.ends_with(".safetensors")) return all;
    const std::string content = Checkpoints::read(file);
    std::uint64_t length = 0;
    std::memcpy(&length, content.data(), 8);
    for (const dp::Tensor& t :
         dp::safetensors_from(std::string_view(content).substr(8, length), content.size(), file)) {
        std::vector<float>& values = all[t.name];
        values.resize(t.count);
        std::memcpy(values.data(), content.data() + t.at, t.bytes());
    }
    return all;
}

}  // namespace

TEST_CASE("what any ranks have saved any ranks go on with, in any mode, with the same bits", "[exhaustive][long]") {
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
        Checkpoints folder;
        const std::string path = folder.path;
        Setup first = setup_of(c.saves, 2);  // saved by two, loaded by three
        first.slices = 12;
        first.steps = 3;
        first.after = [&](int, int step, tuttiDp_t dp) {
            if (step != 0)
                harness::must_succeed(tuttiDpSave(dp, path.c_str()), "save");  // the second replaces the first
        };
        const Trained saved = harness::train(first);
        REQUIRE(folder.files().size() == 5);  // the index, and two files of each kind; nothing else is left
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

TEST_CASE("ranks of one host check a checkpoint together before each reads what it loads") {
    const auto bytes_read = [] {
        std::ifstream io("/proc/self/io");
        std::string word;
        for (long long bytes = 0; io >> word >> bytes;)
            if (word == "rchar:") return bytes;
        return -1ll;
    };
    if (bytes_read() < 0) return harness::skip("/proc/self/io");
    constexpr int ranks = 3;
    constexpr std::size_t count = std::size_t{1} << 18;  // 3 MiB with Adam's states
    Checkpoints folder;
    long long before = 0, after = 0;
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.optimizer.kind = tuttiDpAdam;
    const std::vector<tuttiDpParameter_t> one = {{"w", nullptr, nullptr, count, tuttiFloat32, tuttiDpSameType}};
    harness::on_ranks(ranks, one, config, [&](int rank, tuttiDp_t dp, tuttiComm_t comm) {
        harness::must_succeed(tuttiDpSave(dp, folder.path.c_str()), "save");
        if (rank == 0) before = bytes_read();
        harness::must_succeed(tuttiBarrier(comm, nullptr), "barrier");
        harness::must_succeed(tuttiDpLoad(dp, folder.path.c_str()), "load");
        harness::must_succeed(tuttiBarrier(comm, nullptr), "barrier");
        if (rank == 0) after = bytes_read();
    });
    const long long all = 12 * count;
    REQUIRE(after - before >= (ranks + 1) * all);  // all ranks load all
    REQUIRE(after - before < (ranks + 1) * all + all / 2);
}

TEST_CASE("a checkpoint keeps the scale of losses, and how long it has held") {
    Checkpoints folder;
    const std::string path = folder.path;
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
    Checkpoints folder;
    const std::string path = folder.path;
    Setup setup = setup_of(tuttiDpZero2, 2);
    setup.steps = 2;
    setup.after = [&](int, int step, tuttiDp_t dp) {
        if (step == 0) harness::must_succeed(tuttiDpSave(dp, path.c_str()), "save");
    };
    const Trained plain = harness::train(setup);
    const std::string index = folder.index(), text = Checkpoints::read(index);
    const std::string part = folder.part("optimizer"), content = Checkpoints::read(part);
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
    Checkpoints::write(part, content.substr(0, content.size() / 2));
    REQUIRE(refused("torn", setup));
    Checkpoints::write(part, content.substr(0, 7));
    REQUIRE(refused("torn", setup));
    for (const std::size_t at : {std::size_t{20}, content.size() / 2, content.size() - 1}) {
        std::string flipped = content;
        flipped[at] ^= 1;
        Checkpoints::write(part, flipped);
        REQUIRE(refused("torn", setup));
    }
    unlink(part.c_str());
    REQUIRE(refused("-of-00002", setup));
    Checkpoints::write(part, content);
    for (const std::string& file : folder.files())  // the same tensors, as another save had them
        if (file.starts_with("model-") && folder.path + "/" + file != folder.part("model")) {
            const std::string whole = Checkpoints::read(path + "/" + file);
            Checkpoints::write(path + "/" + file, Checkpoints::read(folder.part("model")));
            REQUIRE(refused("has no", setup));
            Checkpoints::write(path + "/" + file, whole);
        }
    Checkpoints::write(index, text.substr(0, text.size() - 9));
    REQUIRE(refused("torn", setup));
    Checkpoints::write(index, "something else\n");
    REQUIRE(refused("no checkpoint", setup));
    Checkpoints::write(index, R"({"metadata": {"total_size": 4}, "weight_map": {"w0": "model-1.safetensors"}})");
    REQUIRE(refused("tuttiDpSave has not written", setup));
    unlink(index.c_str());
    REQUIRE(refused("no checkpoint", setup));
    Checkpoints::write(index, text);
    Setup other = setup;
    other.counts[2] += 1;
    REQUIRE(refused("'w2' is float32[34] here", other));
    other = setup;
    other.counts.pop_back();
    REQUIRE(refused("'w7' is no parameter here", other));
    other = setup;
    other.counts.push_back(3);
    REQUIRE(refused("'w8' is a parameter here, but not in", other));
    other = setup;
    other.config.optimizer.kind = tuttiDpSgd;
    REQUIRE(refused("another optimizer", other));
    other = setup;
    other.type = tuttiFloat64;
    REQUIRE(refused("float64[", other));
    // The old one outlives a save that fails.
    other = setup;
    other.after = [&](int, int, tuttiDp_t dp) {
        harness::check(tuttiDpSave(dp, "/no/such/folder/checkpoint") == tuttiInvalidUsage && says("/no/such"), "saved");
        harness::must_succeed(tuttiDpLoad(dp, path.c_str()), "the old one is whole");
    };
    harness::train(other);
    REQUIRE(Checkpoints::read(index) == text);
}

TEST_CASE("a file has whole tensors, whatever parts of them ranks had") {
    Checkpoints folder;
    Setup setup = setup_of(tuttiDpZero3, 4);
    setup.steps = 1;
    setup.after = [&](int, int, tuttiDp_t dp) { harness::must_succeed(tuttiDpSave(dp, folder.path.c_str()), "save"); };
    const Trained trained = harness::train(setup);
    std::size_t found = 0;
    for (const std::string& file : folder.files()) {
        if (!file.starts_with("model-")) continue;
        for (const auto& [name, values] : tensors_in(folder.path + "/" + file)) {
            REQUIRE(values == trained.weights.at(std::stoul(name.substr(1))));
            ++found;
        }
    }
    REQUIRE(found == setup.counts.size());
}

TEST_CASE("a save beside training is of the moment when it began, and holds from SaveWait on") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpZero2, tuttiDpZero3}) {
        CAPTURE(mode);
        Checkpoints folder;
        Setup setup = setup_of(mode, 3);
        setup.after = [&](int rank, int step, tuttiDp_t dp) {
            if (step == 1) {
                harness::must_succeed(tuttiDpSetNote(dp, "epoch", rank == 0 ? "7" : "8"), "note");
                const auto staging = [&] {
                    tuttiDpMemory_t m;
                    harness::must_succeed(tuttiDpGetMemory(dp, &m), "memory");
                    return std::pair(m.staging, m.states);
                };
                harness::check(staging().first == 0, "no copy yet");
                harness::must_succeed(tuttiDpSaveAsync(dp, folder.path.c_str()), "save");
                harness::check(staging().first > 0 && staging().first <= 2 * staging().second, "of what it owns");
                if (rank == 0) harness::check(!std::ifstream(folder.index()), "it holds before its time");
            }
            if (step == 3) harness::must_succeed(tuttiDpSaveWait(dp), "wait");
            if (step == 4) harness::must_succeed(tuttiDpSaveAsync(dp, folder.path.c_str()), "given up in Destroy");
        };
        const Trained through = harness::train(setup);
        REQUIRE(folder.files().size() == 7);
        Setup resumed = setup_of(mode, 3);
        resumed.steps = 5;
        resumed.after = [&](int, int step, tuttiDp_t dp) {
            if (step != 0) return;
            harness::must_succeed(tuttiDpLoad(dp, folder.path.c_str()), "load");
            char note[2] = "";
            harness::check(tuttiDpGetNote(dp, "epoch", note, 1) == tuttiInvalidArgument && says("room for 1"), "short");
            harness::must_succeed(tuttiDpGetNote(dp, "epoch", note, 2), "note");
            harness::check(std::string(note) == "7", "the note");
            harness::check(tuttiDpGetNote(dp, "none", note, 2) == tuttiInvalidUsage && says("'none'"), "no note");
        };
        const Trained again = harness::train(resumed);
        REQUIRE(again.statistics[0].steps == 6);
        REQUIRE(again.weights == through.weights);
    }
}

TEST_CASE("a checkpoint keeps learning rates, masters of 16 bits, and how many updates each parameter has had") {
    Checkpoints folder;
    Setup setup = setup_of(tuttiDpZero1, 2);
    setup.type = tuttiBfloat16;
    setup.config.findUnusedParameters = 1;
    setup.skips = [](int, int step, std::size_t p) { return step == 1 && p == 3; };
    setup.after = [&](int, int step, tuttiDp_t dp) {
        if (step == 2) harness::must_succeed(tuttiDpSetLearningRate(dp, 0.03), "rate");
        if (step == 2) harness::must_succeed(tuttiDpSave(dp, folder.path.c_str()), "save");
    };
    const Trained through = harness::train(setup);
    Setup resumed = setup;
    resumed.config.mode = tuttiDpZero3;
    resumed.skips = nullptr;
    resumed.steps = 4;
    resumed.after = [&](int, int step, tuttiDp_t dp) {
        if (step == 0) harness::must_succeed(tuttiDpLoad(dp, folder.path.c_str()), "load");
    };
    REQUIRE(harness::train(resumed).weights == through.weights);
}

TEST_CASE("what compression has kept goes on; other ranks share it out") {
    Checkpoints folder, other;
    Setup setup = setup_of(tuttiDpBucketed, 2);
    setup.config.compression = tuttiDpTopK;
    setup.config.topK = 0.1;
    setup.after = [&](int, int step, tuttiDp_t dp) {
        if (step == 2) harness::must_succeed(tuttiDpSave(dp, folder.path.c_str()), "save");
    };
    const Trained through = harness::train(setup);
    const auto load = [&](int, int step, tuttiDp_t dp) {
        if (step == 0) harness::must_succeed(tuttiDpLoad(dp, folder.path.c_str()), "load");
    };
    Setup resumed = setup;
    resumed.steps = 4;
    resumed.after = load;
    REQUIRE(harness::train(resumed).weights == through.weights);
    resumed.ranks = 3;
    resumed.after = [&](int rank, int step, tuttiDp_t dp) {
        load(rank, step, dp);
        if (step == 0) harness::must_succeed(tuttiDpSave(dp, other.path.c_str()), "save again");
    };
    harness::train(resumed);
    const auto kept = [](const Checkpoints& some) {
        std::map<std::string, std::vector<float>> all;
        for (const std::string& file : some.files())
            for (const auto& [name, values] : tensors_in(some.path + "/" + file))
                if (name.starts_with("residual.")) all[name] = values;
        return all;
    };
    const auto two = kept(folder), three = kept(other);
    REQUIRE(two.size() == 2 * setup.counts.size());
    REQUIRE(three.size() == 3 * setup.counts.size());
    bool any = false;
    for (std::size_t p = 0; p < setup.counts.size(); ++p)
        for (std::size_t i = 0; i < setup.counts[p]; ++i) {
            const std::string name = ".w" + std::to_string(p);
            const float mean = two.at("residual.0" + name)[i] / 2 + two.at("residual.1" + name)[i] / 2;
            any |= mean != 0;
            for (int r = 0; r < 3; ++r)
                REQUIRE(three.at("residual." + std::to_string(r) + name)[i] == Approx(mean).margin(1e-7));
        }
    REQUIRE(any);
}

TEST_CASE("factors of PowerSGD go on where buckets are the same, and begin anew with another rank of theirs") {
    for (const auto mode : {tuttiDpBucketed, tuttiDpZero1}) {
        CAPTURE(mode);
        Checkpoints folder;
        Setup setup = setup_of(mode, 2);
        setup.config.compression = tuttiDpPowerSgd;
        setup.config.powerRank = 2;
        setup.after = [&](int, int step, tuttiDp_t dp) {
            if (step == 2) harness::must_succeed(tuttiDpSave(dp, folder.path.c_str()), "save");
        };
        const Trained through = harness::train(setup);
        setup.steps = 4;
        setup.after = [&](int, int step, tuttiDp_t dp) {
            if (step == 0) harness::must_succeed(tuttiDpLoad(dp, folder.path.c_str()), "load");
        };
        REQUIRE(harness::train(setup).weights == through.weights);
        setup.config.powerRank = 1;
        REQUIRE(harness::difference(harness::train(setup), through) < 0.5);
        setup.config.compression = tuttiDpNoCompression;
        REQUIRE(harness::difference(harness::train(setup), through) < 0.5);
    }
}

TEST_CASE("names that are not UTF-8 are refused before anything is written") {
    Checkpoints folder;
    Setup setup = setup_of(tuttiDpBucketed, 2);
    setup.steps = 1;
    setup.after = [&](int, int, tuttiDp_t dp) {
        harness::must_succeed(tuttiDpSetNote(dp, "\xff", "x"), "note");
        harness::check(tuttiDpSave(dp, folder.path.c_str()) == tuttiInvalidArgument && says("UTF-8"), "saved");
        harness::must_succeed(tuttiDpSetNote(dp, "\xff", nullptr), "note");
        harness::must_succeed(tuttiDpSave(dp, folder.path.c_str()), "save");
    };
    harness::train(setup);
    REQUIRE(folder.files().size() == 5);
}
