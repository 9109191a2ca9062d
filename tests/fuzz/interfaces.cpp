// TUTTI_SOCKET_IFNAME, on hosts with any interfaces; TUTTI_IB_HCA and tables of GIDs.
#include "bootstrap/interfaces.hpp"
#include "fuzz.hpp"
#ifdef TUTTI_VERBS
#include "transport/verbs/gid.hpp"
#endif

using namespace tutti;

namespace {

#ifdef TUTTI_VERBS
void choose_adapters(fuzz::Input& in, const std::string& wish) {
    std::vector<verbs::Gid> table(in.below(6));
    for (verbs::Gid& gid : table) {
        gid.index = static_cast<int>(in.below(8));
        gid.kind = static_cast<verbs::Gid::Kind>(in.below(3));
        in.fill(gid.bytes.data(), gid.bytes.size());
        TUTTI_ASSERT(!gid.text().empty() && gid.fabric() != 0);
    }
    const verbs::Gid* const chosen = verbs::choose_gid(table, static_cast<int>(in.below(9)) - 1);
    TUTTI_ASSERT(chosen == nullptr || (chosen >= table.data() && chosen < table.data() + table.size()));
    fuzz::accepts([&] { verbs::HcaList(wish).allows("mlx5_0", 1); });
}
#endif

}  // namespace

FUZZ_TARGET(interfaces) {
    using namespace bootstrap;
    const std::string wish = in.line();
    static constexpr const char* names[] = {"lo", "eth0", "eth1", "ib0", "docker0", "br-1", "enp3s0f0", ""};
    std::vector<Interface> all(in.below(6));
    for (Interface& i : all) {
        i.name = names[in.below(std::size(names))];
        i.up = in.below(4) != 1;
        i.loopback = in.flag();
        i.address.family = static_cast<Address::Family>(1 + in.below(3));
        i.address.scope = in.below(2);
    }
    fuzz::accepts([&] {
        const Address address = choose_interface(all, wish);
        const std::vector<Address> rails = choose_rails(all, wish);
        TUTTI_ASSERT(rails.size() <= all.size() && (rails.empty() ? !address : rails.front() == address));
    });
#ifdef TUTTI_VERBS
    choose_adapters(in, wish);
#endif
}
