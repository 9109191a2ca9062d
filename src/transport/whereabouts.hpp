// Where a rank is on its machine. Networks choose adapters by it.
#pragma once

#include <string>
#include <vector>

namespace tutti {

struct Whereabouts {
    std::vector<int> cores = {};  // it may run on these; empty: nobody knows
    std::string gpu = {};         // the directory in /sys of the one it uses; empty: none
};

}  // namespace tutti
