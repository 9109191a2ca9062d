// Communicators from communicators.
#include <algorithm>

#include "api/handles.hpp"
#include "tutti/tutti.h"

using namespace tutti;

namespace {

/// What every rank has to say, by rank.
template <class T>
std::vector<T> exchange(tuttiComm_t comm, int ranks, const T& mine) {
    std::vector<T> all(static_cast<std::size_t>(ranks));
    const tuttiResult_t result = tuttiAllGather(&mine, all.data(), sizeof mine, tuttiUint8, comm, nullptr);
    if (result != tuttiSuccess) throw Error(result, last_error());
    return all;
}

struct Wish {
    int color, key;
};

}  // namespace

tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t* newcomm, const tuttiConfig_t* config) {
    return guarded([&] {
        if (newcomm == nullptr) fail(tuttiInvalidArgument, "tuttiCommSplit: newcomm is NULL");
        if (color < 0 && color != TUTTI_SPLIT_NOCOLOR)
            fail(tuttiInvalidArgument, "tuttiCommSplit: color is %d; 0 or more was expected, or TUTTI_SPLIT_NOCOLOR",
                 color);
        if (Group::is_open())
            fail(tuttiInvalidUsage, "tuttiCommSplit: not inside a group, because it waits for all ranks");
        const CommunicatorPtr parent = communicator(comm);
        if (parent->gpu() != nullptr)
            fail(tuttiInvalidUsage,
                 "tuttiCommSplit: communicators on GPUs can't be split yet; make one from a unique id");
        const Options options = config == nullptr ? parent->options() : Options::from(config);
        const std::vector<Wish> wishes = exchange(comm, parent->ranks(), Wish{color, key});
        std::vector<Rank> members;
        for (Rank r = 0; r < parent->ranks(); ++r)
            if (wishes[static_cast<std::size_t>(r)].color == color) members.push_back(r);
        std::ranges::stable_sort(members, {}, [&](Rank r) { return wishes[static_cast<std::size_t>(r)].key; });
        const bool leads = color >= 0 && members.front() == parent->rank();
        const auto ids = exchange(comm, parent->ranks(), leads ? Identity::create().to_unique_id() : tuttiUniqueId{});
        if (color < 0) {
            *newcomm = nullptr;
            return;
        }
        const auto place = std::ranges::find(members, parent->rank()) - members.begin();
        *newcomm = new_handle(Communicator::join(Identity::from(ids[static_cast<std::size_t>(members.front())]),
                                                 static_cast<Rank>(place), static_cast<int>(members.size()), options));
    });
}
