// Where a rank runs on its machine. Networks choose the nearest adapters by it.
#pragma once

#include <string>
#include <vector>

namespace tutti {

struct Whereabouts {
    std::vector<int> cores = {};  // the cores that it may run on; empty: unknown
    std::string gpu = {};         // the directory in /sys of its GPU; empty: it has none
};

}  // namespace tutti
