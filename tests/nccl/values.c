/* Prints what programs compiled against this nccl.h have in them: once with ours, once with NVIDIA's, to be compared.
 */
#include <nccl.h>
#include <stddef.h>
#include <stdio.h>

#define VALUE(name) printf("%s %lld\n", #name, (long long)(name))

int main(void) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    VALUE(config.magic);
    VALUE(config.blocking);
    VALUE(config.netName == NULL);
    VALUE(offsetof(ncclConfig_t, size));
    VALUE(offsetof(ncclConfig_t, magic));
    VALUE(offsetof(ncclConfig_t, version));
    VALUE(offsetof(ncclConfig_t, blocking));
    VALUE(offsetof(ncclConfig_t, cgaClusterSize));
    VALUE(offsetof(ncclConfig_t, minCTAs));
    VALUE(offsetof(ncclConfig_t, maxCTAs));
    VALUE(offsetof(ncclConfig_t, netName));
    VALUE(offsetof(ncclConfig_t, splitShare));
    VALUE(offsetof(ncclConfig_t, trafficClass));
    VALUE(offsetof(ncclConfig_t, commName));
    VALUE(offsetof(ncclConfig_t, collnetEnable));
    VALUE(offsetof(ncclConfig_t, CTAPolicy));
    VALUE(offsetof(ncclConfig_t, shrinkShare));
    VALUE(offsetof(ncclConfig_t, nvlsCTAs));
    VALUE(offsetof(ncclConfig_t, nChannelsPerNetPeer));
    VALUE(offsetof(ncclConfig_t, nvlinkCentricSched));
    VALUE(sizeof(ncclUniqueId));
    VALUE(sizeof(ncclSimInfo_t));
    VALUE(offsetof(ncclSimInfo_t, estimatedTime));
    VALUE(sizeof(ncclResult_t));
    VALUE(sizeof(ncclDataType_t));
    VALUE(sizeof(ncclRedOp_t));
    VALUE(ncclSuccess);
    VALUE(ncclUnhandledCudaError);
    VALUE(ncclSystemError);
    VALUE(ncclInternalError);
    VALUE(ncclInvalidArgument);
    VALUE(ncclInvalidUsage);
    VALUE(ncclRemoteError);
    VALUE(ncclInProgress);
    VALUE(ncclInt8);
    VALUE(ncclChar);
    VALUE(ncclUint8);
    VALUE(ncclInt32);
    VALUE(ncclInt);
    VALUE(ncclUint32);
    VALUE(ncclInt64);
    VALUE(ncclUint64);
    VALUE(ncclFloat16);
    VALUE(ncclHalf);
    VALUE(ncclFloat32);
    VALUE(ncclFloat);
    VALUE(ncclFloat64);
    VALUE(ncclDouble);
    VALUE(ncclBfloat16);
    VALUE(ncclFloat8e4m3);
    VALUE(ncclFloat8e5m2);
    VALUE(ncclNumTypes);
    VALUE(ncclSum);
    VALUE(ncclProd);
    VALUE(ncclMax);
    VALUE(ncclMin);
    VALUE(ncclAvg);
    VALUE(ncclNumOps);
    VALUE(ncclMaxRedOp);
    VALUE(ncclScalarDevice);
    VALUE(ncclScalarHostImmediate);
    VALUE(NCCL_SPLIT_NOCOLOR);
    VALUE(NCCL_CONFIG_UNDEF_INT);
    VALUE(NCCL_UNIQUE_ID_BYTES);
    VALUE(NCCL_WIN_COLL_SYMMETRIC);
    VALUE(NCCL_SHRINK_ABORT);
    VALUE(NCCL_VERSION(2, 7, 8));
    VALUE(NCCL_VERSION(2, 28, 9));
    return 0;
}
