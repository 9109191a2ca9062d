// Unique ids and invitations, behind the checksum.
#include <sodium.h>

#include "bootstrap/rendezvous.hpp"
#include "fuzz.hpp"
#include "transport/links.hpp"

using namespace tutti;
using namespace tutti::bootstrap;

namespace {

/// As identity.cpp does it.
void put_right(tuttiUniqueId& id) {
    std::uint8_t bytes[TUTTI_UNIQUE_ID_BYTES], hash[crypto_generichash_BYTES_MIN];
    std::memcpy(bytes, id.internal, sizeof bytes);
    crypto_generichash_state state;
    crypto_generichash_init(&state, nullptr, 0, sizeof hash);
    crypto_generichash_update(&state, bytes, 12);
    crypto_generichash_update(&state, bytes + 16, sizeof bytes - 16);
    crypto_generichash_final(&state, hash, sizeof hash);
    std::memcpy(id.internal + 12, hash, 4);
}

}  // namespace

FUZZ_TARGET(unique_id) {
    start_crypto();
    const unsigned how = in.below(4);
    if (how == 0) {  // of another rank, over the data plane
        static const harness::MapSession session(0, std::make_shared<harness::MapSession::Offers>());
        Invitation invitation;
        in.fill(invitation.bytes.data(), invitation.bytes.size());
        fuzz::accepts([&] {
            const Rendezvous m = Rendezvous::of(session.accept(invitation));
            TUTTI_ASSERT(!m.tcp.is_local() && (!m.tcp || m.tcp.port != 0));
            m.tcp.text();
        });
        return;
    }
    tuttiUniqueId id{};
    in.fill(id.internal, sizeof id.internal);
    if (how >= 2) std::memcpy(id.internal, "TUTTI-ID\1\0", 10);
    if (how == 3) put_right(id);
    const bool accepted = fuzz::accepts([&] {
        const Rendezvous m = Rendezvous::of(Identity::from(id));
        m.tcp.text();
        const Rendezvous again = Rendezvous::of(m.identity());
        TUTTI_ASSERT(again.flags == m.flags && again.host == m.host && again.tcp == m.tcp);
        TUTTI_ASSERT(std::ranges::equal(again.secret.view(), m.secret.view()));
    });
    TUTTI_ASSERT(how != 3 || accepted);
}
