// ncclConfig_t of whatever version, as long as it says, from a program that was built with another header.
#include "fuzz.hpp"
#include "nccl/shared.hpp"

using namespace tutti;

namespace {

std::string why_not;

}  // namespace

ncclResult_t nccl::refuse(ncclResult_t result, std::string why) {
    why_not = std::move(why);
    return result;
}

FUZZ_TARGET(nccl_config) {
    ncclConfig_t head{};
    head.size = in.below(8) == 7 ? in.below(256) : sizeof head - 4 * in.below(24);
    head.magic = in.below(8) == 7 ? in.number<unsigned>() : 0xcafebeef;
    constexpr unsigned versions[] = {0, 21400, 21700, 21800, 22500, 22700, 22800, 22900, 23003, 23005, 23100};
    head.version = in.below(8) == 7 ? in.number<unsigned>() : versions[in.below(std::size(versions))];
    // No byte more than the caller has: the address sanitizer sees whoever looks further.
    constexpr std::size_t beginning = offsetof(ncclConfig_t, blocking);
    std::vector<std::byte> given(std::max<std::size_t>(head.size, beginning));
    std::memcpy(given.data(), &head, beginning);
    for (std::size_t at = beginning; at + sizeof(int) <= given.size(); at += sizeof(int)) {
        const std::uint32_t which = in.below(8);
        const int value = which < 4   ? NCCL_CONFIG_UNDEF_INT
                          : which < 7 ? static_cast<int>(which) - 4
                                      : in.number<int>();
        std::memcpy(given.data() + at, &value, sizeof value);
    }
    tuttiConfig_t config;
    why_not.clear();
    const bool taken = nccl::read(reinterpret_cast<const ncclConfig_t*>(given.data()), config);
    TUTTI_ASSERT(taken == why_not.empty());
    if (!taken) return;
    TUTTI_ASSERT(head.magic == 0xcafebeef && head.size >= beginning);
    TUTTI_ASSERT(config.blocking == TUTTI_UNDEF_INT || config.blocking == 0 || config.blocking == 1);
    TUTTI_ASSERT(config.commName == nullptr || (head.version >= 22700 && head.size >= 56));
}
