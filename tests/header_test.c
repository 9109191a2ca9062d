/* The public header compiles alone, as C99 and as C++20 (tests/package copies this file to a .cpp). */
#include "tutti/tutti.h"

int main(void) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiUniqueId id;
    return config.size == sizeof config && sizeof id == TUTTI_UNIQUE_ID_BYTES ? 0 : 1;
}
