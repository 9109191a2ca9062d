// The operations that are tried. Each gives back what it has taken, whatever happens on the way.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "walk.hpp"

namespace tutti::failing {
namespace {

std::int32_t value(int rank, std::size_t i) {
    return rank * 7 + static_cast<std::int32_t>(i % 1000) * 3 + 1;
}
std::int32_t sum_of(int ranks, std::size_t i) {
    std::int32_t sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value(r, i);
    return sum;
}

using Expected = std::int32_t (*)(const Party& p, std::size_t n, std::size_t j);
using Issue = tuttiResult_t (*)(Party& p, std::size_t n);

/// in_rows, out_rows: 0 stands for a row for each rank.
Operation collective(const char* name, std::size_t n, std::size_t in_rows, std::size_t out_rows, bool root_only,
                     Issue issue, Expected expected) {
    const auto call = [=](Party& p) {
        const auto rows = [&](std::size_t r) { return n * (r == 0 ? static_cast<std::size_t>(p.ranks) : r); };
        p.in.resize(rows(in_rows));
        p.out.assign(rows(out_rows), -1);
        for (std::size_t i = 0; i < p.in.size(); ++i) p.in[i] = value(p.rank, i);
        const tuttiResult_t result = issue(p, n);
        p.right = true;
        for (std::size_t j = 0; j < p.out.size() && (!root_only || p.rank == 0); ++j)
            p.right = p.right && p.out[j] == expected(p, n, j);
        return result;
    };
    return {name, call};
}

tuttiResult_t with_stream(Party& p) {
    Calls call(p);
    tuttiStream_t stream = nullptr;
    std::int32_t numbers[2] = {p.rank, p.rank};
    if (call(tuttiStreamCreate(&stream))) {
        call(tuttiAllReduce(&numbers[0], &numbers[0], 1, tuttiInt32, tuttiSum, p.comm, stream));
        if (call.good()) call(tuttiAllReduce(&numbers[1], &numbers[1], 1, tuttiInt32, tuttiMax, p.comm, stream));
        if (!call.good()) tuttiCommAbort(std::exchange(p.comm, nullptr));  // what is on the stream ends
        call(tuttiStreamSynchronize(stream));
        call(tuttiStreamDestroy(stream));
    }
    p.right = numbers[0] == p.ranks * (p.ranks - 1) / 2 && numbers[1] == p.ranks - 1;
    return call.first();
}

tuttiResult_t in_a_group(Party& p) {
    Calls call(p);
    const int next = (p.rank + 1) % p.ranks, before = (p.rank + p.ranks - 1) % p.ranks;
    std::int32_t sum = p.rank, largest = p.rank, from = -1, own = p.rank;
    call(tuttiGroupStart());
    call(tuttiAllReduce(&sum, &sum, 1, tuttiInt32, tuttiSum, p.comm, nullptr));
    call(tuttiSend(&own, 1, tuttiInt32, next, p.comm, nullptr));
    call(tuttiRecv(&from, 1, tuttiInt32, before, p.comm, nullptr));
    call(tuttiAllReduce(&largest, &largest, 1, tuttiInt32, tuttiMax, p.comm, nullptr));
    call(tuttiGroupEnd());
    p.right = sum == p.ranks * (p.ranks - 1) / 2 && from == before && largest == p.ranks - 1;
    return call.first();
}

tuttiResult_t uneven(Party& p) {
    std::size_t counts[8] = {}, places[8] = {};
    std::int32_t out[64] = {}, in[8];
    for (int r = 0, at = 0; r < p.ranks; at += ++r)
        counts[r] = static_cast<std::size_t>(r) + 1, places[r] = static_cast<std::size_t>(at);
    for (std::size_t i = 0; i < 8; ++i) in[i] = value(p.rank, i);
    const tuttiResult_t result = tuttiAllGatherv(in, counts[p.rank], out, counts, places, tuttiInt32, p.comm, nullptr);
    p.right = true;
    for (int r = 0; r < p.ranks; ++r)
        for (std::size_t i = 0; i < counts[r]; ++i) p.right = p.right && out[places[r] + i] == value(r, i);
    return result;
}

tuttiResult_t scaled(Party& p) {
    Calls call(p);
    std::int32_t factor = 3, number = p.rank;
    tuttiRedOp_t op;
    if (!call(tuttiRedOpCreatePreMulSum(&op, &factor, tuttiInt32, tuttiScalarHostImmediate, p.comm)))
        return call.first();
    call(tuttiAllReduce(&number, &number, 1, tuttiInt32, op, p.comm, nullptr));
    call(tuttiRedOpDestroy(op, p.comm));
    p.right = number == 3 * p.ranks * (p.ranks - 1) / 2;
    return call.first();
}

/// An operation on memory that the peers map.
tuttiResult_t mapped(Party& p) {
    constexpr std::size_t n = 600'000;  // more than is copied (Platform::copied_up_to())
    Calls call(p);
    void* memory = nullptr;
    if (!call(tuttiMemAlloc(&memory, n * sizeof(std::int32_t)))) return call.first();
    auto* const numbers = static_cast<std::int32_t*>(memory);
    for (int round = 0; round < 2 && call.good(); ++round) {
        for (std::size_t i = 0; i < n; ++i) numbers[i] = value(p.rank, i);
        call(tuttiAllReduce(numbers, numbers, n, tuttiInt32, tuttiSum, p.comm, nullptr));
        p.right = true;
        for (std::size_t i = 0; i < n; ++i) p.right = p.right && numbers[i] == sum_of(p.ranks, i);
    }
    if (!call.good()) tuttiCommAbort(std::exchange(p.comm, nullptr));
    call(tuttiMemFree(memory));
    return call.first();
}

/// Memory of the program's own that takes the place of private pages.
tuttiResult_t registered(Party& p) {
    constexpr std::size_t n = 32 * 1024;
    Calls call(p);
    void *memory = nullptr, *handle = nullptr;
    {
        const OfTheTest mine;
        if (posix_memalign(&memory, 4096, n * sizeof(std::int32_t)) != 0) return tuttiSystemError;
    }
    auto* const numbers = static_cast<std::int32_t*>(memory);
    for (std::size_t i = 0; i < n; ++i) numbers[i] = value(p.rank, i);
    if (call(tuttiCommRegister(p.comm, numbers, n * sizeof(std::int32_t), &handle))) {
        call(tuttiAllReduce(numbers, numbers, n, tuttiInt32, tuttiSum, p.comm, nullptr));
        while (tuttiCommDeregister(p.comm, handle) == tuttiSystemError) call(tuttiSystemError);  // again
        p.right = true;
        for (std::size_t i = 0; i < n; ++i) p.right = p.right && numbers[i] == sum_of(p.ranks, i);
    }
    const OfTheTest mine;
    free(memory);
    return call.first();
}

tuttiResult_t one_sided(Party& p) {
    Calls call(p);
    const int next = (p.rank + 1) % p.ranks, before = (p.rank + p.ranks - 1) % p.ranks;
    std::int32_t here = -1, theirs = -1, own = p.rank;
    tuttiWindow_t window = nullptr;
    void* memory = nullptr;
    if (!call(tuttiMemAlloc(&memory, 4096))) return call.first();
    if (call(tuttiCommWindowRegister(p.comm, memory, 4096, &window, TUTTI_WIN_DEFAULT))) {
        const tuttiWaitSignalDesc_t arrived = {1, before, 0, 0};
        call(tuttiPutSignal(&own, 1, tuttiInt32, next, window, 0, 0, 0, 0, p.comm, nullptr));
        if (call.good()) call(tuttiWaitSignal(1, &arrived, p.comm, nullptr));
        if (call.good()) call(tuttiGet(&theirs, 1, tuttiInt32, next, window, 0, 0, 0, p.comm, nullptr));
        here = *static_cast<std::int32_t*>(memory);
        if (call.good()) call(tuttiBarrier(p.comm, nullptr));
        if (!call.good()) tuttiCommRevoke(p.comm, TUTTI_REVOKE_DEFAULT);
        while (tuttiCommWindowDeregister(p.comm, window) == tuttiSystemError) call(tuttiSystemError);
    }
    if (!call.good()) tuttiCommAbort(std::exchange(p.comm, nullptr));
    call(tuttiMemFree(memory));
    p.right = here == before && theirs == p.rank;
    return call.first();
}

/// Uses a communicator, and gives it back.
void use(Calls& call, tuttiComm_t comm, Party& p) {
    int rank = 0;
    call(tuttiCommUserRank(comm, &rank));
    std::int32_t sum = rank;
    int ranks = 0;
    call(tuttiCommCount(comm, &ranks));  // others may have given up before
    const bool summed = call(tuttiAllReduce(&sum, &sum, 1, tuttiInt32, tuttiMax, comm, nullptr));
    p.right = sum == ranks - 1;
    if (summed)
        call(tuttiCommDestroy(comm));
    else
        call(tuttiCommAbort(comm));
}

tuttiResult_t split(Party& p) {
    Calls call(p);
    tuttiComm_t part = nullptr;
    if (call(tuttiCommSplit(p.comm, 0, -p.rank, &part, nullptr))) use(call, part, p);
    return call.first();
}

tuttiResult_t shrink(Party& p) {
    Calls call(p);
    tuttiComm_t part = nullptr;
    if (call(tuttiCommShrink(p.comm, nullptr, 0, &part, nullptr, TUTTI_SHRINK_DEFAULT))) use(call, part, p);
    return call.first();
}

/// By one rank, whose thread is another one of rank 0's.
tuttiResult_t grow(Party& p) {
    Calls call(p);
    static tuttiUniqueId id;
    static std::thread newcomer;
    const tuttiConfig_t config = config_of(p.way);
    const int ranks = p.ranks + 1;
    Party other;
    if (p.rank == 0) {
        if (!call(tuttiCommGetUniqueId(p.comm, &id))) return call.first();
        const OfTheTest mine;
        newcomer = std::thread([&] {
            const OfTheLibrary its;
            Calls calls(other);
            tuttiComm_t comm = nullptr;
            if (calls(tuttiCommGrow(nullptr, ranks, &id, ranks - 1, &comm, &config))) use(calls, comm, other);
        });
    }
    tuttiComm_t larger = nullptr;
    if (call(tuttiCommGrow(p.comm, ranks, nullptr, -1, &larger, &config))) use(call, larger, p);
    if (p.rank == 0) {
        const OfTheTest mine;
        if (!call.good()) tuttiCommAbort(std::exchange(p.comm, nullptr));
        newcomer.join();
        p.right = p.right && (other.right || !other.text.empty());
        if (!call.good()) p.text += "; the newcomer: " + other.text;
    }
    return call.first();
}

tuttiResult_t suspend(Party& p) {
    Calls call(p);
    std::int32_t largest = p.rank;
    call(tuttiCommSuspend(p.comm)) && call(tuttiCommResume(p.comm)) &&
        call(tuttiAllReduce(&largest, &largest, 1, tuttiInt32, tuttiMax, p.comm, nullptr));
    p.right = largest == p.ranks - 1;
    return call.first();
}

tuttiResult_t init(Party& p) {
    Calls call(p);
    const tuttiConfig_t config = config_of(p.way);
    tuttiComm_t comm = nullptr;
    if (call(tuttiCommInitRankConfig(&comm, p.ranks, p.id, p.rank, &config))) use(call, comm, p);
    return call.first();
}

tuttiResult_t init_alone(Party& p) {
    Calls call(p);
    tuttiUniqueId id;
    tuttiComm_t comm = nullptr;
    if (call(tuttiGetUniqueId(&id)) && call(tuttiCommInitRank(&comm, 1, id, 0))) use(call, comm, p);
    return call.first();
}

tuttiResult_t init_all(Party& p) {
    Calls call(p);
    tuttiComm_t comms[2] = {};
    std::int32_t sums[2] = {1, 2};
    if (!call(tuttiCommInitAll(comms, 2, nullptr))) return call.first();
    if (call(tuttiGroupStart())) {  // else the first sum would wait for the second
        for (int r = 0; r < 2; ++r)
            call(tuttiAllReduce(&sums[r], &sums[r], 1, tuttiInt32, tuttiSum, comms[r], nullptr));
        call(tuttiGroupEnd());
    }
    p.right = sums[0] == 3 && sums[1] == 3;
    for (const tuttiComm_t comm : comms) call(call.good() ? tuttiCommDestroy(comm) : tuttiCommAbort(comm));
    return call.first();
}

tuttiResult_t in_background(Party& p) {
    Calls call(p);
    tuttiConfig_t config = config_of(p.way);
    config.blocking = 0;
    tuttiComm_t comm = nullptr;
    tuttiResult_t state = tuttiCommInitRankConfig(&comm, p.ranks, p.id, p.rank, &config);
    if (state != tuttiInProgress) return state;
    while (tuttiCommGetAsyncError(comm, &state) == tuttiSuccess && state == tuttiInProgress) usleep(100);
    if (call(state)) return use(call, comm, p), call.first();
    const OfTheTest mine;
    p.text = tuttiGetLastError(comm);
    tuttiCommAbort(comm);
    return call.first();
}

}  // namespace

namespace {

std::vector<Operation> collectives() {
    constexpr std::size_t n = 700;
    return {
        collective(
            "all_reduce", 20'000, 1, 1, false,
            [](Party& p, std::size_t c) {
                return tuttiAllReduce(p.in.data(), p.out.data(), c, tuttiInt32, tuttiSum, p.comm, nullptr);
            },
            [](const Party& p, std::size_t, std::size_t j) { return sum_of(p.ranks, j); }),
        collective(
            "reduce_scatter", n, 0, 1, false,
            [](Party& p, std::size_t c) {
                return tuttiReduceScatter(p.in.data(), p.out.data(), c, tuttiInt32, tuttiSum, p.comm, nullptr);
            },
            [](const Party& p, std::size_t c, std::size_t j) {
                return sum_of(p.ranks, static_cast<std::size_t>(p.rank) * c + j);
            }),
        collective(
            "all_gather", n, 1, 0, false,
            [](Party& p, std::size_t c) {
                return tuttiAllGather(p.in.data(), p.out.data(), c, tuttiInt32, p.comm, nullptr);
            },
            [](const Party&, std::size_t c, std::size_t j) { return value(static_cast<int>(j / c), j % c); }),
        collective(
            "broadcast", n, 1, 1, false,
            [](Party& p, std::size_t c) {
                return tuttiBroadcast(p.in.data(), p.out.data(), c, tuttiInt32, 0, p.comm, nullptr);
            },
            [](const Party&, std::size_t, std::size_t j) { return value(0, j); }),
        collective(
            "reduce", n, 1, 1, true,
            [](Party& p, std::size_t c) {
                return tuttiReduce(p.in.data(), p.out.data(), c, tuttiInt32, tuttiSum, 0, p.comm, nullptr);
            },
            [](const Party& p, std::size_t, std::size_t j) { return sum_of(p.ranks, j); }),
        collective(
            "all_to_all", n, 0, 0, false,
            [](Party& p, std::size_t c) {
                return tuttiAlltoAll(p.in.data(), p.out.data(), c, tuttiInt32, p.comm, nullptr);
            },
            [](const Party& p, std::size_t c, std::size_t j) {
                return value(static_cast<int>(j / c), static_cast<std::size_t>(p.rank) * c + j % c);
            }),
        collective(
            "gather", n, 1, 0, true,
            [](Party& p, std::size_t c) {
                return tuttiGather(p.in.data(), p.out.data(), c, tuttiInt32, 0, p.comm, nullptr);
            },
            [](const Party&, std::size_t c, std::size_t j) { return value(static_cast<int>(j / c), j % c); }),
        collective(
            "scatter", n, 0, 1, false,
            [](Party& p, std::size_t c) {
                return tuttiScatter(p.in.data(), p.out.data(), c, tuttiInt32, 0, p.comm, nullptr);
            },
            [](const Party& p, std::size_t c, std::size_t j) {
                return value(0, static_cast<std::size_t>(p.rank) * c + j);
            }),
        {"barrier", [](Party& p) { return p.right = true, tuttiBarrier(p.comm, nullptr); }},
        {"all_gatherv", uneven},
    };
}

std::vector<Operation> others() {
    return {
        {"a group of collectives and messages", in_a_group},
        {"two sums on a stream", with_stream},
        {"a sum of scaled numbers", scaled},
        {"a sum in mapped memory", mapped},
        {"a sum in registered memory", registered},
        {"a window, a put and a get", one_sided},
        {"split", split},
        {"shrink", shrink},
        {"grow", grow},
        {"suspend and resume", suspend},
        {"init", init, true},
        {"init in the background", in_background, true},
        {"init of one rank", init_alone, true},
        {"init of all", init_all, true},
    };
}

}  // namespace

std::vector<Operation> operations(std::initializer_list<const char*> names) {
    std::vector<Operation> all = collectives();
    for (auto more : {others(), training()})
        for (Operation& operation : more) all.push_back(std::move(operation));
    if (names.size() > 0)
        std::erase_if(all, [&](const Operation& o) {
            return std::ranges::none_of(names, [&](const char* name) { return std::string(o.name) == name; });
        });
    if (names.size() > 0 && all.size() != names.size()) throw std::invalid_argument("no operation has such a name");
    return all;
}

}  // namespace tutti::failing
