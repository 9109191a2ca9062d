// The host side of NCCL's interface for kernels (nccl_device.h), as far as kernels reach the memory of peers by loads
// and stores (LSA) and by multicast: communicators for kernels, and where peers' parts of windows are. GIN is refused.
#include <algorithm>
#include <cstring>
#include <vector>

#include "nccl/layouts.hpp"
#include "nccl/shared.hpp"

using namespace tutti::nccl;

namespace {

constexpr unsigned magic = 0xcafebeef;
constexpr unsigned oldest = 22902;  // whose structures are known; 2.28 has no versions in them

/// The caller's rank and the number of ranks; 0 of 0 without a communicator.
ncclTeam world(ncclComm_t comm) {
    ncclTeam team{0, 0, 1};
    if (ncclCommCount(comm, &team.nRanks) != ncclSuccess || ncclCommUserRank(comm, &team.rank) != ncclSuccess)
        return {0, 0, 1};
    return team;
}

/// Ranks whose memory kernels can address: all, or only the caller's.
ncclTeam lsa(ncclComm_t comm) {
    return has_addresses(comm) ? world(comm) : ncclTeam{1, 0, 1};
}

/// The ranks that have the caller's place in their own team of LSA.
ncclTeam rail(ncclComm_t comm) {
    const ncclTeam all = world(comm);
    return has_addresses(comm) ? ncclTeam{1, 0, all.nRanks} : all;
}

ncclResult_t not_supported(const char* function, const char* what) {
    return refuse(ncclInvalidUsage, std::string(function) + ": of NCCL's interface for kernels (nccl_device.h), " +
                                        what + " is not supported: only loads, stores and multicast (LSA) are");
}

/// As kernels divide by it without a division.
std::uint32_t reciprocal(int of) {
    const auto x = static_cast<std::uint32_t>(of);
    return UINT32_MAX / x + ((x & (x - 1)) == 0 ? 1 : 0);
}

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

std::size_t barrier_bytes(int ranks, int barriers) {
    return (3 + static_cast<std::size_t>(ranks)) * static_cast<std::size_t>(barriers) * sizeof(std::uint32_t);
}

/// The resources of a communicator for kernels, one behind the other in its resource window.
class Resources {
  public:
    /// Returns the number of the next one.
    std::uint32_t add(std::size_t bytes, std::size_t align) {
        too_many_ = too_many_ || bytes > most || align > most;
        if (too_many_) return 0;
        const std::size_t at = rounded_up(bytes_, std::max(unit, align));
        bytes_ = at + bytes;
        too_many_ = bytes_ > most;
        return static_cast<std::uint32_t>(at / unit);
    }
    std::size_t bytes() const { return bytes_; }
    bool too_many() const { return too_many_; }

  private:
    static constexpr std::size_t unit = 128, most = unit << 32;  // bytes, so that numbers have 32 bits
    std::size_t bytes_ = 0;
    bool too_many_ = false;
};

/// The requirements, of any version, as if they were of the newest.
ncclDevCommRequirements renewed(const ncclDevCommRequirements& given) {
    ncclDevCommRequirements wanted{};
    std::memcpy(&wanted, &given, std::min(given.size, sizeof wanted));
    if (given.version >= 22904) return wanted;
    wanted.lsa_barriers = std::max(wanted.lsa_barriers, wanted.barriers);  // neither asked for GIN then
    wanted.barriers = wanted.rail_gin_barriers = 0;
    return wanted;
}

/// What is asked for and not supported; nullptr: nothing.
const char* unsupported(const ncclDevCommRequirements& wanted) {
    bool gin = wanted.gin_forced || wanted.gin_connection != 0 || wanted.gin_signals > 0 || wanted.gin_counters > 0 ||
               wanted.rail_gin_barriers > 0 || wanted.world_gin_barriers > 0;
    for (const ncclDevResourceRequirements* r = wanted.resources; r != nullptr; r = r->next)
        gin = gin || r->gin_signals > 0 || r->gin_counters > 0;
    if (gin) return "GIN";
    if (wanted.barriers > 0) return "a barrier across hosts (barrierCount; lsaBarrierCount is)";
    return nullptr;
}

/// Where to write the handles of multicast that teams ask for. Throws std::bad_alloc.
std::vector<ncclMultimemHandle*> handles_wanted(const ncclDevCommRequirements& wanted) {
    std::vector<ncclMultimemHandle*> all;
    for (const ncclTeamRequirements* t = wanted.teams; t != nullptr; t = t->next)
        if (t->multimem) all.push_back(t->made);
    return all;
}

/// Refuses multicast that there is not.
ncclResult_t check_multicast(const char* function, ncclComm_t comm, const ncclDevCommRequirements& wanted) {
    for (const ncclTeamRequirements* t = wanted.teams; t != nullptr; t = t->next)
        if (t->multimem && (t->made == nullptr || t->team.nRanks != world(comm).nRanks || t->team.stride != 1))
            return not_supported(function, "multicast (multimem) of a team of fewer than all ranks, or without handle");
    if (has_multicast(comm)) return ncclSuccess;
    return refuse(ncclInvalidUsage, std::string(function) +
                                        ": multicast (lsaMultimem, or multimem of a team) takes a GPU for each rank, "
                                        "which all have multicast, and TUTTI_GPU_MULTICAST and NCCL_NVLS_ENABLE not 0");
}

std::string version_text(unsigned version) {
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

/// Refuses structures whose layout is not the one of this library.
ncclResult_t check_version(const char* function, unsigned version) {
    if (version >= oldest && version <= TUTTI_NCCL_INTERFACE) return ncclSuccess;
    return refuse(ncclInvalidUsage, std::string(function) + ": the program was compiled with nccl_device.h of NCCL " +
                                        version_text(version) + "; this library has the structures of " +
                                        version_text(oldest) + " to " + version_text(TUTTI_NCCL_INTERFACE));
}

/// Writes it as the version has it that `comm` names.
void write(const ncclDevComm& comm, void* made) {
    if (comm.version >= 23000) {
        std::memcpy(made, &comm, sizeof comm);
    } else {
        std::memset(made, 0, older_dev_comm_bytes(comm.version));
        std::memcpy(made, &comm.lsa, sizeof comm.lsa);
    }
}

/// Of a window whose parts kernels reach: the address of a rank's part, `offset` bytes on.
ncclResult_t find_part(const char* function, ncclWindow_t handle, std::size_t offset, int rank, void** pointer) {
    if (pointer == nullptr) return refuse(ncclInvalidArgument, std::string(function) + ": outPtr is NULL");
    *pointer = nullptr;
    const Window* const window = find_window(handle);
    if (window == nullptr) return refuse(ncclInvalidArgument, std::string(function) + ": the window is none");
    if (window->first == nullptr)
        return refuse(ncclInvalidUsage,
                      std::string(function) +
                          ": kernels do not reach the parts of the window: nccl_device.h needs TUTTI_GPU_VIRTUAL=1, "
                          "ranks on GPUs that p2p joins, and windows in memory of ncclMemAlloc, at the same offset on "
                          "all ranks");
    const int ranks = world(window->comm).nRanks;
    if (rank < 0 || rank >= ranks || offset >= window->bytes)
        return refuse(ncclInvalidArgument, std::string(function) + ": rank " + std::to_string(rank) + " of " +
                                               std::to_string(ranks) + ", byte " + std::to_string(offset) + " of " +
                                               std::to_string(window->bytes));
    *pointer = window->first + static_cast<std::size_t>(rank) * window->stride + offset;
    return ncclSuccess;
}

}  // namespace

bool tutti::nccl::has_addresses(const ncclComm* comm) {
    int has = 0;
    return inner(comm) != nullptr && tuttiCommHasAddresses(comm->inner, &has) == tuttiSuccess && has != 0;
}

bool tutti::nccl::has_multicast(const ncclComm* comm) {
    int has = 0;
    return has_addresses(comm) && tuttiCommHasMulticast(comm->inner, &has) == tuttiSuccess && has != 0;
}

NCCL_API(ncclResult_t, ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties* properties)) {
    if (properties == nullptr || properties->magic != magic || properties->size < offsetof(ncclCommProperties, rank))
        return refuse(ncclInvalidArgument,
                      "ncclCommQueryProperties: props is NULL, or was not initialized with "
                      "NCCL_COMM_PROPERTIES_INITIALIZER");
    ncclCommProperties found{};
    const ncclResult_t result = ncclCommCuDevice(comm, &found.cudaDev);
    if (result != ncclSuccess) return result;
    found.size = properties->size;
    found.magic = properties->magic;
    found.version = properties->version;
    const ncclTeam all = world(comm);
    found.rank = all.rank;
    found.nRanks = all.nRanks;
    found.deviceApiSupport = has_addresses(comm);
    found.multimemSupport = has_multicast(comm);
    found.nLsaTeams = all.nRanks / lsa(comm).nRanks;
    found.nvmlDev = found.cudaDev;
    found.hostRmaSupport = found.cudaDev < 0;  // between GPUs it depends on how they are joined
    std::memcpy(properties, &found, std::min(properties->size, sizeof found));
    return ncclSuccess;
}

namespace {

/// Opens the window of the resources and writes the whole communicator, and the handles of multicast that it has.
ncclResult_t open_resources(const char* function, ncclComm_t comm, const ncclDevComm& d, std::size_t bytes,
                            bool multicast, const std::vector<ncclMultimemHandle*>& handles, void* made) {
    const auto window = std::make_shared<Window>();
    int device = 0;
    void* memory = nullptr;
    ncclResult_t result = converted(tuttiCommDevice(comm->inner, &device));
    if (result == ncclSuccess) result = converted(tuttiMemAllocDevice(&memory, bytes, device));
    if (result != ncclSuccess) return result;
    window->comm = comm;
    window->base = static_cast<std::byte*>(memory);
    window->bytes = bytes;
    window->owned = true;
    return register_window(window, TUTTI_WIN_DEFAULT, [=](ncclWindow_t handle) {
        void* first = nullptr;
        if (const ncclResult_t found = find_part(function, handle, 0, 0, &first); found != ncclSuccess) return found;
        if (multicast && window->multicast == nullptr)
            return refuse(ncclSystemError, std::string(function) +
                                               ": CUDA has refused multicast to the communicator's memory; Tutti's log "
                                               "says why");
        ncclDevComm whole = d;
        whole.lsa.resources = handle;
        whole.lsa.resources_inlined.first = window->first;
        whole.lsa.resources_inlined.stride = static_cast<std::uint32_t>(window->stride >> 32);
        whole.lsa.resources_inlined.multicast = multicast_pages(*window);
        if (multicast) whole.lsa.lsa_multimem.base = multicast_base(*comm);
        for (ncclMultimemHandle* const one : handles) *one = whole.lsa.lsa_multimem;
        write(whole, made);
        return ncclSuccess;
    });
}

ncclResult_t create(const char* function, ncclComm_t comm, const ncclDevCommRequirements* given, void* made) {
    if (given == nullptr || made == nullptr)
        return refuse(ncclInvalidArgument, std::string(function) + ": an argument is NULL");
    if (given->magic != magic || given->size < offsetof(ncclDevCommRequirements, gin_connection))
        return refuse(ncclInvalidUsage, std::string(function) +
                                            ": the requirements were not initialized with "
                                            "NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER of "
                                            "nccl_device.h of NCCL 2.29 or 2.30");
    if (const ncclResult_t result = check_version(function, given->version); result != ncclSuccess) return result;
    const ncclDevCommRequirements wanted = renewed(*given);
    if (const char* const what = unsupported(wanted)) return not_supported(function, what);
    if (wanted.lsa_barriers < 0)
        return refuse(ncclInvalidArgument,
                      std::string(function) + ": lsaBarrierCount is " + std::to_string(wanted.lsa_barriers));
    const ncclTeam all = world(comm);
    if (all.nRanks == 0) return refuse(ncclInvalidArgument, std::string(function) + ": comm is no communicator");
    if (!has_addresses(comm))
        return refuse(ncclInvalidUsage, std::string(function) +
                                            ": nccl_device.h needs TUTTI_GPU_VIRTUAL=1, and ranks that are all on "
                                            "GPUs which p2p joins; this is rank " +
                                            std::to_string(all.rank) + " of a communicator that has not both");
    const std::vector<ncclMultimemHandle*> handles = handles_wanted(wanted);
    const bool multicast = wanted.lsa_multimem || !handles.empty();
    if (multicast)
        if (const ncclResult_t result = check_multicast(function, comm, wanted); result != ncclSuccess) return result;
    ncclDevComm d{};
    d.magic = magic;
    d.version = given->version;
    d.lsa.rank = d.lsa.lsaRank = all.rank;
    d.lsa.nRanks = d.lsa.lsaSize = all.nRanks;
    d.lsa.nRanks_reciprocal = d.lsa.lsaSize_reciprocal = reciprocal(all.nRanks);
    Resources resources;
    d.lsa.lsa_barrier.barriers = wanted.lsa_barriers;
    d.lsa.lsa_barrier.buffer = resources.add(barrier_bytes(all.nRanks, wanted.lsa_barriers), alignof(std::uint32_t));
    for (const ncclDevResourceRequirements* r = wanted.resources; r != nullptr; r = r->next) {
        const std::uint32_t number = resources.add(r->bytes, r->align);
        if (r->buffer != nullptr) *r->buffer = number;
    }
    if (multicast && resources.bytes() == 0) resources.add(1, 1);  // a window, which says where multicast is
    if (resources.too_many())
        return refuse(ncclInvalidArgument, std::string(function) + ": the resources have more than 512 GiB");
    void* table = nullptr;
    if (const ncclResult_t result = window_table(*comm, table); result != ncclSuccess) return result;
    d.lsa.windows = static_cast<ncclDevCommWindowTable*>(table);
    if (resources.bytes() == 0) {
        write(d, made);
        return ncclSuccess;
    }
    return open_resources(function, comm, d, resources.bytes(), multicast, handles, made);
}

}  // namespace

NCCL_API(ncclResult_t, ncclDevCommCreate,
         (ncclComm_t comm, const ncclDevCommRequirements* requirements, ncclDevComm* made)) {
    return if_memory([&] { return create("ncclDevCommCreate", comm, requirements, made); });
}

NCCL_API(ncclResult_t, ncclDevCommDestroy, (ncclComm_t comm, const ncclDevComm* made)) {
    const char* const function = "ncclDevCommDestroy";
    if (made == nullptr) return refuse(ncclInvalidArgument, std::string(function) + ": devComm is NULL");
    const bool versioned = made->magic == magic;
    if (versioned)
        if (const ncclResult_t result = check_version(function, made->version); result != ncclSuccess) return result;
    const LsaComm& lsa = versioned ? made->lsa : *reinterpret_cast<const LsaComm*>(made);
    if (lsa.resources == nullptr) return ncclSuccess;
    const Window* const window = find_window(lsa.resources);
    if (window == nullptr || !window->owned)
        return refuse(ncclInvalidArgument, std::string(function) +
                                               ": ncclDevCommCreate has not made this, or it was "
                                               "destroyed before");
    return deregister_window(comm, lsa.resources);
}

namespace {

/// NULL, as NCCL returns where GPUs have no multicast, if kernels reach the parts of the window without it alone.
ncclResult_t find_multicast(const char* function, ncclWindow_t window, std::size_t offset, void** pointer) {
    const ncclResult_t result = find_part(function, window, offset, 0, pointer);
    if (result != ncclSuccess) return result;
    std::byte* const multicast = find_window(window)->multicast;
    *pointer = multicast == nullptr ? nullptr : multicast + offset;
    return ncclSuccess;
}

}  // namespace

NCCL_API(ncclResult_t, ncclGetLsaMultimemDevicePointer, (ncclWindow_t window, size_t offset, void** pointer)) {
    return find_multicast("ncclGetLsaMultimemDevicePointer", window, offset, pointer);
}

/// All handles are of all ranks.
NCCL_API(ncclResult_t, ncclGetMultimemDevicePointer,
         (ncclWindow_t window, size_t offset, ncclMultimemHandle, void** pointer)) {
    return find_multicast("ncclGetMultimemDevicePointer", window, offset, pointer);
}

NCCL_API(ncclResult_t, ncclGetLsaDevicePointer, (ncclWindow_t window, size_t offset, int rank, void** pointer)) {
    return find_part("ncclGetLsaDevicePointer", window, offset, rank, pointer);
}

NCCL_API(ncclResult_t, ncclGetPeerDevicePointer, (ncclWindow_t window, size_t offset, int peer, void** pointer)) {
    return find_part("ncclGetPeerDevicePointer", window, offset, peer, pointer);
}

NCCL_API(ncclTeam, ncclTeamWorld, (ncclComm_t comm)) {
    return world(comm);
}

NCCL_API(ncclTeam, ncclTeamLsa, (ncclComm_t comm)) {
    return lsa(comm);
}

NCCL_API(ncclTeam, ncclTeamRail, (ncclComm_t comm)) {
    return rail(comm);
}

NCCL_API(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam team, int rank)) {
    return world(comm).rank + (rank - team.rank) * team.stride;
}

NCCL_API(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam team, int rank)) {
    return lsa(comm).rank + (rank - team.rank) * team.stride;
}

NCCL_API(ncclResult_t, ncclLsaBarrierCreateRequirement,
         (ncclTeam team, int barriers, ncclLsaBarrierHandle* handle, ncclDevResourceRequirements* wanted)) {
    if (handle == nullptr || wanted == nullptr || barriers < 0 || team.nRanks < 1)
        return refuse(ncclInvalidArgument, "ncclLsaBarrierCreateRequirement: " + std::to_string(barriers) +
                                               " barriers of a team of " + std::to_string(team.nRanks) +
                                               " ranks; outHandle and outReq must not be NULL");
    *wanted = {};
    wanted->bytes = barrier_bytes(team.nRanks, barriers);
    wanted->align = alignof(std::uint32_t);
    wanted->buffer = &handle->buffer;
    handle->barriers = barriers;
    return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclGinBarrierCreateRequirement, (ncclComm_t, ncclTeam, int /*barriers*/, void*, void*)) {
    return not_supported("ncclGinBarrierCreateRequirement", "GIN");
}

NCCL_API(ncclResult_t, ncclGinOutboxCreateRequirement, (int /*blocks*/, int /*size_log2*/, void*, void*)) {
    return not_supported("ncclGinOutboxCreateRequirement", "GIN");
}

NCCL_API(ncclResult_t, ncclGinInboxA2ACreateRequirement, (ncclTeam, int /*blocks*/, int /*size_log2*/, void*, void*)) {
    return not_supported("ncclGinInboxA2ACreateRequirement", "GIN");
}

NCCL_API(ncclResult_t, ncclLLA2ACreateRequirement, (int /*blocks*/, int /*slots*/, void*, void*)) {
    return not_supported("ncclLLA2ACreateRequirement", "LLA2A");
}

/// Slots of 8 bytes for `elements` of at most `size` bytes.
NCCL_API(int, ncclLLA2ACalcSlots, (int elements, int size)) {
    return elements * ((size + 7) / 8);
}
