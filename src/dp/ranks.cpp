#include "dp/ranks.hpp"

#include <algorithm>
#include <array>

#include "base/os.hpp"
#include "dp/hash.hpp"

namespace tutti::dp {
namespace {

/// Splits a communicator of the same ranks, on CPUs, from comm. Collective.
tuttiComm_t among_cpus(tuttiComm_t comm, int rank, const char* name) {
    tuttiConfig_t on_cpus = TUTTI_CONFIG_INITIALIZER;
    on_cpus.device = TUTTI_DEVICE_CPU;
    on_cpus.commName = name;
    return split(comm, 0, rank, &on_cpus);
}

}  // namespace

void judge(std::span<const Verdict> all) {
    for (std::size_t r = 0; r < all.size(); ++r)
        if (all[r].code != tuttiSuccess) fail(all[r].code, "on rank %zu: %s", r, all[r].words);
}

Ranks::Roster Ranks::meet(tuttiComm_t comm, bool on_gpu, const Verdict& mine) {
    Roster roster;
    must(tuttiCommUserRank(comm, &roster.rank));
    must(tuttiCommCount(comm, &roster.size));
    struct Word {
        Verdict verdict;
        std::uint8_t on_gpu;
        std::uint64_t host;
    } word{mine, on_gpu, host_id()};
    std::vector<Word> words(static_cast<std::size_t>(roster.size));
    roster.control.reset(among_cpus(comm, roster.rank, "the layer's agreements"));
    must(tuttiAllGather(&word, words.data(), sizeof word, tuttiUint8, roster.control.get(), nullptr));
    std::vector<Verdict> all;
    for (const Word& w : words) {
        all.push_back(w.verdict);
        roster.gpus.push_back(w.on_gpu);
        roster.hosts.push_back(w.host);
    }
    judge(all);
    return roster;
}

void Ranks::join(tuttiComm_t users, Roster roster, std::vector<Shards> shards, bool groups, bool gathers) {
    users_ = users;
    roster_ = std::move(roster);
    shards_ = std::move(shards);
    control_ = roster_.control.release();
    comm_ = split(users, 0, rank());
    if (groups && this->shards().copies > 1) {
        const Shards& mine = this->shards();
        group_ = split(users, mine.copy, mine.own);
        copies_ = split(users, mine.own, rank());
        if (gathers) group_gathers_ = split(users, mine.copy, mine.own);
    }
    if (gathers) gathers_ = split(users, 0, rank());
    cpu_comm_ = any_gpu() ? among_cpus(users, rank(), "the layer's communicator of CPUs") : comm_;
}

void Ranks::leave() noexcept {
    if (cpu_comm_ == comm_) cpu_comm_ = nullptr;
    for (tuttiComm_t* comm : {&control_, &cpu_comm_, &group_gathers_, &gathers_, &copies_, &group_, &comm_}) {
        if (*comm != nullptr) tuttiCommDestroy(*comm);
        *comm = nullptr;
    }
}

void Ranks::abort() const noexcept {
    for (const tuttiComm_t comm : {control_, cpu_comm_ == comm_ ? nullptr : cpu_comm_})
        if (comm != nullptr) tuttiCommAbort(comm);
    for (const tuttiComm_t comm : of_memory())
        if (comm != nullptr) tuttiCommAbort(comm);
}

void Ranks::check() const {
    if (!roster_.gpus[static_cast<std::size_t>(rank())]) return;
    for (const tuttiComm_t comm : of_memory()) {
        if (comm == nullptr) continue;
        tuttiResult_t state = tuttiSuccess;
        must(tuttiCommGetAsyncError(comm, &state));
        if (state != tuttiSuccess) throw Error(state, tuttiGetLastError(comm));
    }
}

bool Ranks::any_gpu() const {
    return std::ranges::count(roster_.gpus, 1) > 0;
}

void Ranks::broadcast(std::string& text, int root) const {
    std::uint64_t length = text.size();
    broadcast(std::span(&length, 1), root);
    text.resize(length);
    if (length > 0) broadcast(std::span<char>(text), root);
}

int Ranks::furthest(long long steps, bool has) const {
    const std::vector<std::array<long long, 2>> all = exchange(std::array<long long, 2>{has, steps});
    return static_cast<int>(std::ranges::max_element(all) - all.begin());
}

std::vector<Verdict> Ranks::verdicts(const Verdict& mine) const {
    std::uint8_t refused = mine.code != tuttiSuccess;
    maximum({&refused, 1});
    return refused ? exchange(mine) : std::vector<Verdict>{};
}

void Ranks::agree_on(const char* function, const char* item, std::span<const std::string> texts) const {
    struct Summary {
        std::uint64_t items, hash;
    };
    std::vector<std::uint64_t> hashes;
    for (const std::string& t : texts) hashes.push_back(hash(t));
    const auto all = exchange(Summary{hashes.size(), hash(hashes.data(), hashes.size() * 8)});
    const auto differs = [&](const Summary& s) { return s.items != all[0].items || s.hash != all[0].hash; };
    if (std::ranges::none_of(all, differs)) return;
    const std::size_t longest = std::ranges::max(all, {}, &Summary::items).items;
    hashes.resize(longest, 0);
    const std::vector<std::uint64_t> table = gather(std::span<const std::uint64_t>(hashes));
    for (std::size_t i = 0; i < longest; ++i)
        for (int r = 1; r < size(); ++r) {
            if (table[static_cast<std::size_t>(r) * longest + i] == table[i]) continue;
            struct Said {
                char words[480];
            } mine;
            std::snprintf(mine.words, sizeof mine.words, "%s", i < texts.size() ? texts[i].c_str() : "nothing");
            const auto said = exchange(mine);
            const char *on_0 = said[0].words, *on_r = said[static_cast<std::size_t>(r)].words;
            if (i == 0)
                fail(tuttiInvalidUsage, "%s: the options differ: rank 0 has %s, but rank %d has %s", function, on_0, r,
                     on_r);
            fail(tuttiInvalidUsage, "%s: %s %zu differs: rank 0 has %s, but rank %d has %s", function, item, i - 1,
                 on_0, r, on_r);
        }
}

}  // namespace tutti::dp
