#include "comm/user_programs.hpp"

#include <algorithm>
#include <sstream>

#include "base/log.hpp"
#include "base/os.hpp"
#include "transport/fifo.hpp"

namespace tutti {

std::shared_ptr<const UserAlgorithms> load_programs(const std::string& paths, int ranks) {
    auto own = std::make_shared<UserAlgorithms>(ranks, static_cast<int>(slot_depth));
    std::istringstream list(paths);
    for (std::string path; std::getline(list, path, ':');) {
        if (path.empty()) continue;
        const ProgramFile& file = own->add(read_file(path), path);
        const auto here = std::ranges::count(file.sets, ranks, &ProgramSet::ranks);
        log(Level::info, "%s has the algorithm %s: %td of its %zu sets of programs are for %d ranks, and proven",
            path.c_str(), file.name.c_str(), here, file.sets.size(), ranks);
    }
    return own;
}

}  // namespace tutti
