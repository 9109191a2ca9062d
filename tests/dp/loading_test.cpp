// A load on one rank, without an engine: between its two readings files change, and it needs no memory of its own.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/result.hpp"
#include "dp/calls.hpp"
#include "dp/checkpoint.hpp"
#include "dp/registered.hpp"
#include "harness/catch.hpp"
#include "harness/folder.hpp"
#include "harness/skip.hpp"

using namespace tutti;
using namespace tutti::dp;

namespace {

/// Four parameters of so many elements each, with Adam's states, which one rank owns.
class OneRank {
  public:
    explicit OneRank(std::size_t count)
        : registration_(harness::registered({count, count, count, count}, tuttiDpZero2, tuttiDpAdam)),
          storage_(registration_, backends_) {
        backends_ = Backends::of(TUTTI_DEVICE_CPU, registration_.options);
        tuttiUniqueId id;
        must(tuttiGetUniqueId(&id));
        must(tuttiCommInitRank(&comm_, 1, id, 0));
        Ranks::Roster roster = Ranks::meet(comm_, false, Verdict{});
        std::vector<Shards> shards = deal_shards(registration_.options, roster.hosts, true);
        ranks_.join(comm_, std::move(roster), std::move(shards));
        const std::size_t last_first[] = {3, 2, 1, 0};
        storage_.create(ranks_.shards(), last_first);
        nothing_.residuals.resize(storage_.buckets().size(), nullptr);
        nothing_.factors = nothing_.residuals;
    }
    ~OneRank() {
        ranks_.leave();
        tuttiCommDestroy(comm_);
    }
    OneRank(const OneRank&) = delete;

    /// Another number everywhere.
    void fill(float from) {
        for (const Bucket& b : storage_.buckets())
            for (std::byte* const at : {b.own_data, b.states.state[0], b.states.state[1]})
                std::iota(floats(at), floats(at) + b.own_count, from += 1000);
    }
    std::vector<float> all() const {
        std::vector<float> values;
        for (const Bucket& b : storage_.buckets())
            for (std::byte* const at : {b.own_data, b.states.state[0], b.states.state[1]})
                values.insert(values.end(), floats(at), floats(at) + b.own_count);
        return values;
    }
    void save(const std::string& path, Staging* beside = nullptr) {
        Manifest m;
        for (const Parameter& p : registration_.parameters) m.model[p.name];
        Saving(path, ranks_, storage_, nothing_, std::move(m), beside).finish(ranks_);
    }
    Loading load(const std::string& path) { return Loading(path, ranks_, storage_, nothing_); }
    const Ranks& ranks() const { return ranks_; }

  private:
    static float* floats(std::byte* at) { return reinterpret_cast<float*>(at); }

    const Registration registration_;
    Backends backends_;
    Storage storage_;
    tuttiComm_t comm_ = nullptr;
    Ranks ranks_;
    Kept nothing_;
};

/// Kilobytes, as /proc/self/status has them.
std::size_t kilobytes(const char* field) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with(field)) return std::stoul(line.substr(std::strlen(field)));
    throw std::runtime_error("no such field in /proc/self/status");
}

}  // namespace

TEST_CASE("a load finds what was saved, and nothing has changed before all of it was checked") {
    const harness::Folder folder;
    OneRank layer(100'003);
    layer.fill(1);
    const std::vector<float> saved = layer.all();
    layer.save(folder.path);
    layer.fill(2);
    const std::vector<float> before = layer.all();
    Loading loading = layer.load(folder.path);
    REQUIRE(layer.all() == before);
    loading.finish(layer.ranks());
    REQUIRE(layer.all() == saved);
}

TEST_CASE("a file that changes while it is loaded is named") {
    const harness::Folder folder;
    OneRank layer(100'003);
    layer.save(folder.path);
    std::string changed;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path))
        if (entry.path().filename().string().starts_with("optimizer-")) changed = entry.path();
    Loading loading = layer.load(folder.path);
    std::fstream file(changed, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
    file.close();
    std::string words;
    try {
        loading.finish(layer.ranks());
    } catch (const Error& error) {
        words = error.what();
    }
    CAPTURE(words);
    REQUIRE(words.find("exp_avg_sq.w3' in '" + changed + "' was changed while it was loaded") != std::string::npos);
}

TEST_CASE("a load needs no memory beside the layer's") {
    if (!std::ofstream("/proc/self/clear_refs")) return harness::skip("/proc/self/clear_refs, which resets VmHWM");
    const harness::Folder folder;
    constexpr std::size_t count = std::size_t{1} << 20;  // 48 MiB with the states
    OneRank layer(count);
    layer.fill(1);
    layer.save(folder.path);
    std::ofstream("/proc/self/clear_refs") << "5";
    const std::size_t before = kilobytes("VmHWM:");
    layer.load(folder.path).finish(layer.ranks());
    REQUIRE(kilobytes("VmHWM:") - before < 12 * count * 4 / 1024 / 4);
}

TEST_CASE("saves beside training copy to memory that is kept from one to the next") {
    const harness::Folder folder;
    OneRank layer(100'003);
    layer.fill(1);
    Staging staging;
    layer.save(folder.path, &staging);
    const std::byte* const first = staging.memory.get();
    REQUIRE(first != nullptr);
    layer.fill(2);
    const std::vector<float> saved = layer.all();
    layer.save(folder.path, &staging);
    REQUIRE(staging.memory.get() == first);
    layer.fill(3);
    layer.load(folder.path).finish(layer.ranks());
    REQUIRE(layer.all() == saved);
}
