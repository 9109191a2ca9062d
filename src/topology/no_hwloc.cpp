// Replaces discover.cpp in builds without hwloc.
#include "base/result.hpp"
#include "topology/topology.hpp"

namespace tutti {

Part discover(const std::string&, Detail) {
    fail(tuttiInvalidUsage, "this build of Tutti has no hwloc, so it can't look at the machine");
}

}  // namespace tutti
