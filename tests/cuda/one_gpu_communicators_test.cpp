// Communicators beside each other, and made of others, on a GPU (test-one-gpu).
#include <memory>

#include "world.hpp"

using namespace tutti::on_gpu;

namespace {

constexpr std::array one_gpu{0, 0};
constexpr std::size_t small = 100, large = 70'000;  // elements: a kernel of their own, and the interpreter

/// Whether an all-reduce on communicators of one thread's ranks adds up.
bool adds_up(const std::vector<tuttiComm_t>& comms) {
    std::vector<std::unique_ptr<Memory>> memory;
    for (std::size_t r = 0; r < comms.size(); ++r) {
        memory.push_back(std::make_unique<Memory>(Kind::malloc, large * sizeof(int)));
        upload(memory[r]->at(), std::vector<int>(large, static_cast<int>(r) + 1));
    }
    cudaStream_t stream = nullptr;
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    require(tuttiGroupStart());
    for (std::size_t r = 0; r < comms.size(); ++r)
        require(tuttiAllReduce(memory[r]->at(), memory[r]->at(), large, tuttiInt32, tuttiSum, comms[r], stream));
    require(tuttiGroupEnd());
    require(cudaStreamSynchronize(stream));
    require(cudaStreamDestroy(stream));
    const auto n = static_cast<int>(comms.size());
    for (const auto& m : memory)
        if (downloaded<int>(m->at(), large) != std::vector<int>(large, n * (n + 1) / 2)) return false;
    return true;
}

}  // namespace

TEST_CASE("communicators are split, shrunk, suspended, resumed and grown") {
    const std::array on{0, 0, 0};
    std::vector<tuttiComm_t> all(3), parts(3), rest(2), grown(4);
    require(tuttiCommInitAll(all.data(), 3, on.data()));
    CHECK(adds_up(all));

    require(tuttiGroupStart());
    for (std::size_t r = 0; r < 3; ++r)
        require(tuttiCommSplit(all[r], r == 1 ? 1 : 0, static_cast<int>(r), &parts[r], nullptr));
    require(tuttiGroupEnd());
    CHECK(adds_up({parts[0], parts[2]}));
    CHECK(adds_up({parts[1]}));
    for (const tuttiComm_t comm : parts) require(tuttiCommDestroy(comm));

    const int excluded = 1;
    require(tuttiGroupStart());
    for (const std::size_t r : {0, 2})
        require(tuttiCommShrink(all[r], &excluded, 1, &rest[r / 2], nullptr, TUTTI_SHRINK_DEFAULT));
    require(tuttiGroupEnd());
    CHECK(adds_up(rest));
    for (const tuttiComm_t comm : rest) require(tuttiCommDestroy(comm));

    std::uint64_t before = 0, between = 1;
    require(tuttiCommMemory(all[0], &before));
    require(tuttiGroupStart());
    for (const tuttiComm_t comm : all) require(tuttiCommSuspend(comm));
    require(tuttiGroupEnd());
    require(tuttiCommMemory(all[0], &between));
    CHECK((before > 0 && between == 0));
    CHECK(tuttiAllReduce(nullptr, nullptr, 0, tuttiInt32, tuttiSum, all[0], nullptr) == tuttiInvalidUsage);
    require(tuttiGroupStart());
    for (const tuttiComm_t comm : all) require(tuttiCommResume(comm));
    require(tuttiGroupEnd());
    CHECK(adds_up(all));

    tuttiUniqueId id;
    tuttiConfig_t config = with_timeout(20'000);
    config.device = 0;
    require(tuttiCommGetUniqueId(all[0], &id));
    require(tuttiGroupStart());
    for (std::size_t r = 0; r < 3; ++r) require(tuttiCommGrow(all[r], 4, nullptr, -1, &grown[r], nullptr));
    require(tuttiCommGrow(nullptr, 4, &id, 3, &grown[3], &config));
    require(tuttiGroupEnd());
    CHECK(adds_up(grown));
    for (const tuttiComm_t comm : grown) require(tuttiCommDestroy(comm));
    CHECK(adds_up(all));
    for (const tuttiComm_t comm : all) require(tuttiCommDestroy(comm));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("threads call communicators of their own, and ranks of several") {
    constexpr int times = 8;
    World first(one_gpu, large, 20'000), second(one_gpu, small, 20'000);
    const std::array worlds{&first, &second};
    const bool of_ranks = GENERATE(true, false);  // each thread is a rank of both; or drives both ranks of one
    std::array<tuttiResult_t, 2> results{};
    const auto body = [&](std::size_t t) {
        for (int i = 0; i < times && results[t] == tuttiSuccess; ++i)
            for (std::size_t k = 0; k < 2 && results[t] == tuttiSuccess; ++k) {
                if (!of_ranks && k == 0) tuttiGroupStart();
                results[t] = of_ranks ? worlds[k]->all_reduce_alone(0, t) : worlds[t]->all_reduce_alone(0, k);
                if (!of_ranks && k == 1) results[t] = tuttiGroupEnd();
            }
    };
    std::thread other(body, std::size_t{1});
    body(0);
    other.join();
    for (const tuttiResult_t result : results) require(result);
    first.check(0, times);
    second.check(0, times);
}

TEST_CASE("config.channels, of calls by p2p") {
    tuttiConfig_t config = with_timeout(20'000);
    config.channels = GENERATE(1, 3, 8);
    config.transport = "p2p";
    config.reproducible = GENERATE(0, 1);
    World world(one_gpu, large, config);
    world.all_reduce(0);
    world.all_reduce(0);
    world.check(0, 2);
}
