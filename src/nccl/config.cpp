// Reads ncclConfig_t. It has grown with NCCL's versions; its size and version say which fields its caller knows.
#include <cstddef>
#include <cstring>

#include "nccl/shared.hpp"

namespace tutti::nccl {
namespace {

constexpr unsigned magic = 0xcafebeef;

struct Field {
    const char* name;
    std::size_t offset;
    unsigned since;  // the first version with the field; before, the bytes may be padding
    int low, high;
};

#define FIELD(name, since, low, high) \
    { #name, offsetof(ncclConfig_t, name), since, low, high }
constexpr Field fields[] = {
    FIELD(blocking, 21400, 0, 1),
    FIELD(cgaClusterSize, 21700, 0, 8),
    FIELD(minCTAs, 21700, 1, INT_MAX),
    FIELD(maxCTAs, 21700, 1, INT_MAX),
    FIELD(splitShare, 21800, 0, 1),
    FIELD(trafficClass, 22500, 0, INT_MAX),
    FIELD(collnetEnable, 22700, 0, 1),
    FIELD(CTAPolicy, 22700, 0, 7),
    FIELD(shrinkShare, 22700, 0, 1),
    FIELD(nvlsCTAs, 22700, 1, INT_MAX),
    FIELD(nChannelsPerNetPeer, 22800, 1, INT_MAX),
    FIELD(nvlinkCentricSched, 22800, 0, 1),
    FIELD(graphUsageMode, 22900, 0, 2),
    FIELD(numRmaCtx, 22900, 1, INT_MAX),
    FIELD(maxP2pPeers, 23003, 1, INT_MAX),
    FIELD(graphStreamOrdering, 23005, 0, 1),
};
#undef FIELD
constexpr int cta_policy = 7;  // its index
static_assert(sizeof(ncclConfig_t) == 96 && offsetof(ncclConfig_t, blocking) == 16 &&
              offsetof(ncclConfig_t, netName) == 32 && offsetof(ncclConfig_t, commName) == 48 &&
              offsetof(ncclConfig_t, numRmaCtx) == 84 && offsetof(ncclConfig_t, graphStreamOrdering) == 92);

/// The field's value; NCCL_CONFIG_UNDEF_INT if the caller's version does not have it.
int value_of(const Field& field, const ncclConfig_t& given) {
    if (given.version < field.since || given.size < field.offset + sizeof(int)) return NCCL_CONFIG_UNDEF_INT;
    int value;
    std::memcpy(&value, reinterpret_cast<const char*>(&given) + field.offset, sizeof value);
    return value;
}

}  // namespace

bool read(const ncclConfig_t* given, tuttiConfig_t& config) {
    config = TUTTI_CONFIG_INITIALIZER;
    config.device = TUTTI_DEVICE_CURRENT;
    if (given == nullptr) return true;
    if (given->magic != magic || given->size < offsetof(ncclConfig_t, blocking)) {
        refuse(ncclInvalidArgument, "the ncclConfig_t was not initialized with NCCL_CONFIG_INITIALIZER");
        return false;
    }
    for (const Field& field : fields) {
        const int value = value_of(field, *given);
        if (value == NCCL_CONFIG_UNDEF_INT || (value >= field.low && value <= field.high)) continue;
        const std::string range = field.high == INT_MAX
                                      ? std::to_string(field.low) + " or more"
                                      : std::to_string(field.low) + " to " + std::to_string(field.high);
        refuse(ncclInvalidArgument, std::string("ncclConfig_t.") + field.name + " is " + std::to_string(value) + "; " +
                                        range + " was expected");
        return false;
    }
    const int least = value_of(fields[2], *given), most = value_of(fields[3], *given);
    if (least != NCCL_CONFIG_UNDEF_INT && most != NCCL_CONFIG_UNDEF_INT && least > most) {
        refuse(ncclInvalidArgument,
               "ncclConfig_t.minCTAs is " + std::to_string(least) + ", maxCTAs only " + std::to_string(most));
        return false;
    }
    static_assert(TUTTI_UNDEF_INT == NCCL_CONFIG_UNDEF_INT);
    config.blocking = value_of(fields[0], *given);
    const int policy = value_of(fields[cta_policy], *given);
    if (policy != NCCL_CONFIG_UNDEF_INT)
        config.ctaPolicy = (policy & NCCL_CTA_POLICY_ZERO) != 0 ? TUTTI_CTA_POLICY_ZERO : TUTTI_CTA_POLICY_DEFAULT;
    if (given->version >= 22700 && given->size >= offsetof(ncclConfig_t, commName) + sizeof given->commName)
        config.commName = given->commName;
    return true;
}

}  // namespace tutti::nccl
