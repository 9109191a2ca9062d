// What kernels compiled with NCCL's nccl_device.h of 2.29 or 2.30 read, and what its host functions take, byte by byte.
// Members for what this library does not have (GIN) stay zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl/nccl.h"

struct ncclWindow_vidmem {
    void* host;
    std::byte* first;  // rank 0's part, as this rank's kernels reach it
    int lsa_rank, world_rank;
    std::uint32_t stride;     // from a rank's part to the next one's, in units of 4 GiB
    std::uint32_t multicast;  // pages of 4 KiB from a communicator's base to the window
    std::uint32_t gin_offset;
    void* gin_windows[4];
    void* gin_segments;
    int segments;
};
static_assert(offsetof(ncclWindow_vidmem, first) == 8 && offsetof(ncclWindow_vidmem, lsa_rank) == 16 &&
              offsetof(ncclWindow_vidmem, world_rank) == 20 && offsetof(ncclWindow_vidmem, stride) == 24 &&
              offsetof(ncclWindow_vidmem, gin_windows) == 40 && sizeof(ncclWindow_vidmem) == 88);

struct ncclTeam {
    int nRanks, rank, stride;
};
struct ncclMultimemHandle {
    void* base;
};
struct ncclLsaBarrierHandle {
    std::uint32_t buffer;  // resources are numbered by where they begin in the resource window, in units of 128 bytes
    int barriers;
};
struct ncclGinBarrierHandle {
    std::uint32_t signal, unused;
};

struct ncclCommProperties {
    std::size_t size;
    unsigned int magic, version;
    int rank, nRanks, cudaDev, nvmlDev;
    bool deviceApiSupport, multimemSupport;
    int ginType, nLsaTeams;
    bool hostRmaSupport;
    int railedGinType;
};
static_assert(offsetof(ncclCommProperties, rank) == 16 && offsetof(ncclCommProperties, ginType) == 36 &&
              sizeof(ncclCommProperties) == 56);

/// Memory that a caller wants on every rank. `buffer` becomes its number.
struct ncclDevResourceRequirements {
    ncclDevResourceRequirements* next;
    std::size_t bytes, align;
    std::uint32_t* buffer;
    int gin_signals, gin_counters;
    std::uint32_t *first_signal, *first_counter;
};
static_assert(offsetof(ncclDevResourceRequirements, buffer) == 24 && sizeof(ncclDevResourceRequirements) == 56);

struct ncclTeamRequirements {
    ncclTeamRequirements* next;
    ncclTeam team;
    bool multimem;
    ncclMultimemHandle* made;
};
static_assert(offsetof(ncclTeamRequirements, multimem) == 20 && sizeof(ncclTeamRequirements) == 32);

struct ncclDevCommRequirements {
    std::size_t size;
    unsigned int magic, version;
    ncclDevResourceRequirements* resources;
    ncclTeamRequirements* teams;
    bool lsa_multimem;
    int barriers, lsa_barriers, rail_gin_barriers;
    int ll_blocks, ll_slots;
    bool gin_forced;
    int gin_contexts, gin_signals, gin_counters;  // the last ones of 2.29.2
    int gin_connection;
    bool gin_exclusive;
    int gin_depth, gin_class;
    int world_gin_barriers;
    bool gin_strong_signals, gin_address_signals;
};
static_assert(offsetof(ncclDevCommRequirements, resources) == 16 &&
              offsetof(ncclDevCommRequirements, lsa_barriers) == 40 &&
              offsetof(ncclDevCommRequirements, gin_forced) == 56 &&
              offsetof(ncclDevCommRequirements, gin_connection) == 72 &&
              offsetof(ncclDevCommRequirements, world_gin_barriers) == 88 && sizeof(ncclDevCommRequirements) == 96);

/// Windows by the memory of this rank, for kernels that look a pointer up.
struct ncclDevCommWindowTable {
    struct Entry {
        std::uintptr_t base, bytes;
        ncclWindow_t window;
    } entries[32];
    ncclDevCommWindowTable* next;
};
static_assert(offsetof(ncclDevCommWindowTable, next) == 768);

/// The part of a communicator for kernels that is about loads and stores.
struct LsaComm {
    int rank, nRanks;
    std::uint32_t nRanks_reciprocal;
    int lsaRank, lsaSize;
    std::uint32_t lsaSize_reciprocal;
    ncclDevCommWindowTable* windows;
    ncclWindow_t resources;
    struct {
        char unused_before[8];
        std::byte* first;
        char unused_between[8];
        std::uint32_t stride, multicast;
        char unused_behind[32];
    } resources_inlined;  // where ncclWindow_vidmem has them
    ncclGinBarrierHandle hybrid_world_barrier;
    ncclMultimemHandle lsa_multimem;
    ncclLsaBarrierHandle lsa_barrier;
};
static_assert(offsetof(LsaComm, lsaRank) == 12 && offsetof(LsaComm, windows) == 24 &&
              offsetof(LsaComm, resources) == 32 && offsetof(LsaComm, resources_inlined.first) == 48 &&
              offsetof(LsaComm, resources_inlined.stride) == 64 && offsetof(LsaComm, lsa_multimem) == 112 &&
              offsetof(LsaComm, lsa_barrier) == 120 && sizeof(LsaComm) == 128);

struct ncclDevComm {
    unsigned int magic, version;
    LsaComm lsa;
    ncclGinBarrierHandle rail_barrier;
    std::uint8_t gin_connections, gin_types[4];
    void* gin_handles[4];
    int gin_signals, gin_counters;
    std::uint64_t* gin_shadows;
    std::uint32_t gin_contexts;
    bool gin_connections_railed, gin_strong_signals, gin_contexts_railed;
    std::uint32_t* abort;
    ncclLsaBarrierHandle hybrid_lsa_barrier;
    ncclGinBarrierHandle hybrid_rail_barrier, world_barrier;
};
static_assert(offsetof(ncclDevComm, lsa) == 8 && offsetof(ncclDevComm, gin_connections) == 144 &&
              offsetof(ncclDevComm, gin_handles) == 152 && offsetof(ncclDevComm, gin_contexts) == 200 &&
              offsetof(ncclDevComm, abort) == 208 && offsetof(ncclDevComm, hybrid_lsa_barrier) == 216 &&
              sizeof(ncclDevComm) == 240);

/// Those of 2.29 begin with the LsaComm; zeros follow.
constexpr std::size_t older_dev_comm_bytes(unsigned version) {
    return version < 22905 ? 200 : 224;
}
