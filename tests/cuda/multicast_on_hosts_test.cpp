// Collectives by multicast: what only the runtime on hosts shows.
#include <cstdio>

#include "multicast_world.hpp"
#include "on_hosts.hpp"

using namespace tutti;
using namespace tutti::by_multicast;

namespace {

std::size_t counted() {
    const std::size_t read = on_hosts::traffic().read;
    on_hosts::reset_traffic();
    return read;
}
[[maybe_unused]] const auto counts = bytes_read = counted;

}  // namespace

TEST_CASE("weak memory with a kernel that orders less", "[.process]") {
    const std::string release = "st.release.sys.u64", relaxed = "st.relaxed.sys.u64";
    const auto change = [&](std::string text) {
        for (std::size_t at = 0; (at = text.find(release, at)) != std::string::npos;)
            text.replace(at, release.size(), relaxed);
        return text;
    };
    on_hosts::Settings settings{.devices = 3, .weak = std::strtoull(std::getenv("SEED"), nullptr, 10)};
    if (std::getenv("MUTANT") != nullptr) {
        settings.mutants.kernels = "multicast";
        settings.mutants.change = change;
        REQUIRE(std::freopen("/dev/null", "w", stdout) != nullptr);
    }
    on_hosts::restart(settings);
    CHECK(wrong_sums(World(3), 2003) == 0);
}

TEST_CASE("weak memory: the kernel orders what it has to") {
    const auto status = [](std::uint64_t seed, std::vector<std::string> variables) {
        variables.push_back("SEED=" + std::to_string(harness::seed() + seed));
        return status_of(started("weak memory with a kernel that orders less", std::move(variables)));
    };
    for (std::uint64_t seed = 0; seed < 3; ++seed) CHECK(status(seed, {}) == 0);
    bool shows = false;
    for (std::uint64_t seed = 0; seed < 12 && !shows; ++seed) {
        const int ended = status(seed, {"MUTANT=1"});
        REQUIRE(WIFEXITED(ended));
        shows = WEXITSTATUS(ended) != 0;
    }
    CHECK(shows);
}
