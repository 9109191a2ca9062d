/* The public headers compile alone, as C99 and as C++20 (tests/package copies this file to a .cpp). */
#include "tutti/dp.h"
#include "tutti/ps.h"
#include "tutti/tutti.h"

int main(void) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiDpConfig_t dp = TUTTI_DP_CONFIG_INITIALIZER;
    tuttiPsConfig_t ps = TUTTI_PS_CONFIG_INITIALIZER;
    tuttiPsStatistics_t statistics = TUTTI_PS_STATISTICS_INITIALIZER;
    tuttiUniqueId id;
    config.lanes = 3, dp.unused = 1, dp.zero = 0; /* names until version 0.2 */
    if (config.channels != 3 || dp.findUnusedParameters != 1 || dp.zeroGrad != 0) return 1;
    if (tuttiDpSharded != tuttiDpShardedServer || tuttiDpZero1 != 4) return 1;
    if (ps.size != sizeof ps || ps.keySize != sizeof(tuttiPsKey_t) || statistics.size != sizeof statistics) return 1;
    if (ps.timeoutMs != 0 || ps.partBytes != 0 || ps.staleness != TUTTI_UNDEF_INT || statistics.bytes != 0) return 1;
    return config.size == sizeof config && dp.size == sizeof dp && sizeof id == TUTTI_UNIQUE_ID_BYTES ? 0 : 1;
}
