// The transports that join ranks of one process in tests of one-sided operations; verbs over mock adapters.
#pragma once

#include <string_view>
#include <vector>

#ifdef TUTTI_VERBS
#include "transport/fake_verbs.hpp"
#include "transport/verbs/net.hpp"
#endif

namespace tutti::harness {

#ifdef TUTTI_VERBS
inline constexpr bool has_verbs = true;

/// While there is one, and transport is verbs, mock adapters take the place of this machine's. Their connections
/// overtake each other.
class Adapters {
  public:
    explicit Adapters(const char* transport) : used_(transport != nullptr && std::string_view(transport) == "verbs") {
        if (!used_) return;
        verbs::net_here().use(fake_library);
        fake_verbs().apart = true;
    }
    ~Adapters() {
        if (!used_) return;
        fake_verbs() = {};
        verbs::net_here().use(verbs::load_library);
    }
    Adapters(const Adapters&) = delete;

  private:
    const bool used_;
};
#else
inline constexpr bool has_verbs = false;

struct Adapters {
    explicit Adapters(const char*) {}
};
#endif

/// Shared memory, and networks.
inline std::vector<const char*> local_and_networks() {
    std::vector<const char*> all{"local", "tcp"};
    if (has_verbs) all.push_back("verbs");
    return all;
}

inline std::vector<const char*> shared_memory_and_networks() {
    std::vector<const char*> all = local_and_networks();
    all.push_back("shm");
    return all;
}

inline std::vector<const char*> networks() {
    std::vector<const char*> all = local_and_networks();
    all.erase(all.begin());
    return all;
}

}  // namespace tutti::harness
