#include "bootstrap/rendezvous.hpp"

#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "base/caught.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "bootstrap/directory.hpp"
#include "bootstrap/interfaces.hpp"

namespace tutti {
namespace bootstrap {
namespace {

constexpr char identity_magic[8] = {'T', 'U', 'T', 'T', 'I', '-', 'I', 'D'};
constexpr std::uint16_t identity_version = 1;
constexpr std::size_t checksum_at = 12, body_at = 16;

std::uint32_t checksum(View bytes) {
    unsigned char hash[crypto_generichash_BYTES_MIN];
    const View body = bytes.subspan(body_at);
    crypto_generichash_state state;
    crypto_generichash_init(&state, nullptr, 0, sizeof hash);
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(bytes.data()), checksum_at);
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(body.data()), body.size());
    crypto_generichash_final(&state, hash, sizeof hash);
    std::uint32_t sum;
    std::memcpy(&sum, hash, sizeof sum);
    return sum;
}

void check(View bytes) {
    Reader in(bytes);
    const View magic = in.bytes(sizeof identity_magic);
    const auto version = in.number<std::uint16_t>();
    in.number<std::uint16_t>();
    const auto sum = in.number<std::uint32_t>();
    if (std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; }))
        fail(tuttiInvalidArgument,
             "the unique id is all zeros: tuttiGetUniqueId was not called, or its result did not reach this rank");
    if (!std::ranges::equal(magic, std::as_bytes(std::span(identity_magic))))
        fail(tuttiInvalidArgument,
             "the unique id was not made by tuttiGetUniqueId, or got damaged on its way to this rank");
    if (version != identity_version)
        fail(tuttiInvalidArgument,
             "the unique id has version %u, but this library speaks version %u: all ranks must run the same "
             "version of Tutti",
             version, identity_version);
    if (sum != checksum(bytes))
        fail(tuttiInvalidArgument,
             "the unique id got damaged or cut off on its way to this rank (its checksum is wrong): all %d "
             "bytes must be passed on",
             TUTTI_UNIQUE_ID_BYTES);
}

}  // namespace

Identity Rendezvous::identity(Bytes room) const {
    start_crypto();
    Bytes out = std::move(room);
    out.reserve(TUTTI_UNIQUE_ID_BYTES);  // no copies are left behind
    Writer w(out);
    w.bytes(std::as_bytes(std::span(identity_magic)));
    w.number(identity_version);
    w.number(flags);
    w.number(std::uint32_t{0});
    w.bytes(secret.view());
    w.number(host);
    tcp.write(w);
    out.resize(TUTTI_UNIQUE_ID_BYTES);
    const std::uint32_t sum = checksum(out);
    std::memcpy(out.data() + checksum_at, &sum, sizeof sum);
    Identity identity;
    std::copy(out.begin(), out.end(), identity.bytes.begin());
    sodium_memzero(out.data(), out.size());
    return identity;
}

Rendezvous Rendezvous::of(const Identity& identity) {
    start_crypto();
    check(identity.bytes);
    Reader in(View(identity.bytes).subspan(10));
    Rendezvous m;
    m.flags = in.number<std::uint16_t>();
    in.number<std::uint32_t>();
    m.secret = Secret(in.bytes(Secret::size));
    m.host = in.number<std::uint64_t>();
    m.tcp = Address::read(in);
    return m;
}

Rendezvous open_rendezvous(std::uint16_t flags, const Secret& secret, const Address& here = {}) {
    const std::shared_ptr<Service> service = Service::get();
    Rendezvous rendezvous;
    rendezvous.flags = flags;
    rendezvous.secret = secret;
    rendezvous.host = host_id();
    if (!rendezvous.has(Rendezvous::one_host)) rendezvous.tcp = here ? here : rendezvous_interface();
    if (!rendezvous.tcp)
        rendezvous.flags |= Rendezvous::one_host;  // a machine without any network still runs jobs of its own
    service->run([&] { rendezvous.tcp = Directory::open(*service, rendezvous)->tcp_address(); });
    return rendezvous;
}

Identity create_identity(std::uint16_t flags) {
    Bytes room;
    room.reserve(TUTTI_UNIQUE_ID_BYTES);  // nothing can fail once the rendezvous is open: nobody else would close it
    return open_rendezvous(flags, Secret::random()).identity(std::move(room));
}

// An invitation: the nonce, 32 bytes; host_id of its maker, u64; TCP address, 24 bytes.
Invited open_invited(const Secret& secret, Address here) {
    start_crypto();
    const Secret nonce = Secret::random();
    here.port = 0;
    Invited invited;
    Bytes out;
    out.reserve(invitation_size);  // nothing can fail once the rendezvous is open: nobody else would close it
    invited.rendezvous = open_rendezvous(0, secret.derive("tutti invited", nonce.view()), here);
    Writer w(out);
    w.bytes(nonce.view());
    w.number(invited.rendezvous.host);
    invited.rendezvous.tcp.write(w);
    TUTTI_ASSERT(out.size() == invited.invitation.bytes.size());
    std::copy(out.begin(), out.end(), invited.invitation.bytes.begin());
    return invited;
}

bool on_one_host(const Identity& identity) {
    return Rendezvous::of(identity).has(Rendezvous::one_host);
}

std::vector<Address> data_interfaces(const Identity& identity) {
    const Rendezvous m = Rendezvous::of(identity);
    if (!config().socket_ifname.empty()) return rails_here();
    if (m.has(Rendezvous::one_host)) return {Address::loopback()};
    if (!m.tcp || m.host != host_id()) return rails_here();
    Address here = m.tcp;  // its address serves on its host: see Joining::open_listeners
    here.port = 0;
    return {here};
}

}  // namespace bootstrap

Identity::~Identity() {
    sodium_memzero(bytes.data(), bytes.size());
}

Identity Identity::create() {
    return bootstrap::create_identity(0);
}

Identity Identity::from(const tuttiUniqueId& id) {
    Identity identity;
    std::memcpy(identity.bytes.data(), id.internal, identity.bytes.size());
    bootstrap::Rendezvous::of(identity);
    return identity;
}

tuttiUniqueId Identity::to_unique_id() const {
    tuttiUniqueId id;
    std::memcpy(id.internal, bytes.data(), bytes.size());
    return id;
}

Invitation Session::invite(Identity* identity) const {
    using namespace bootstrap;
    Bytes room;
    room.reserve(TUTTI_UNIQUE_ID_BYTES);  // nothing can fail once the rendezvous is open: nobody else would close it
    const Invited invited = open_invited(secret(invitations));
    if (identity != nullptr) *identity = invited.rendezvous.identity(std::move(room));
    return invited.invitation;
}

Identity Session::accept(const Invitation& invitation) const {
    using namespace bootstrap;
    Reader in(invitation.bytes);
    Rendezvous rendezvous;
    rendezvous.secret = secret(invitations).derive("tutti invited", in.bytes(Secret::size));
    rendezvous.host = in.number<std::uint64_t>();
    rendezvous.tcp = Address::read(in);
    if (rendezvous.tcp.is_local() || (rendezvous.tcp && rendezvous.tcp.port == 0))
        fail(tuttiRemoteError,
             "rank %d was told to meet the others at %s, which is no place for that: what the ranks "
             "send each other gets damaged on its way",
             rank(), rendezvous.tcp.text().c_str());
    if (!rendezvous.tcp) rendezvous.flags |= Rendezvous::one_host;
    return rendezvous.identity();
}

void open_rendezvous(const Identity& identity) {
    using namespace bootstrap;
    const Rendezvous rendezvous = Rendezvous::of(identity);
    if (!rendezvous.has(Rendezvous::rank0_opens)) return;
    const std::shared_ptr<Service> service = Service::get();
    service->run([&] { Directory::open_by_rank0(*service, rendezvous); });
}

void close_rendezvous(const Identity& identity, std::string_view why) {
    using namespace bootstrap;
    const std::shared_ptr<Service> service = Service::running();
    if (!service) return;
    service->run([&] {
        if (const auto found = Directory::find(*service, Rendezvous::of(identity))) found->give_up(why);
    });
}

void forget_rendezvous(const Identity& identity) {
    using namespace bootstrap;
    const std::shared_ptr<Service> service = Service::get();
    service->run([&] {
        if (const auto found = Directory::find(*service, Rendezvous::of(identity))) found->close();
    });
}

RendezvousPoint::RendezvousPoint(const Session& session) : invitation_(session.invite(&identity_)) {}

RendezvousPoint::~RendezvousPoint() {
    if (!needed_) return;
    shielded("closing a rendezvous",
             [this] { close_rendezvous(identity_, "the rank in whose process the others were to meet gave up"); });
}

Identity Session::rendezvous(std::span<const Rank> members, const Agreed& agreed) const {
    using namespace bootstrap;
    if (agreed.invitation) return accept(*agreed.invitation);
    for (const Rank r : members)
        if (!is_here(r))
            fail(tuttiSystemError,
                 "%s is on another host, and the lowest rank that is left could open no place to meet (its log says "
                 "why)",
                 name(r).c_str());
    Rendezvous rendezvous;
    Bytes context;
    Writer(context).number(agreed.number);
    Writer(context).bytes(std::as_bytes(members));
    rendezvous.flags = Rendezvous::one_host | Rendezvous::rank0_opens;
    rendezvous.secret = secret("tutti rendezvous").derive("tutti members meet", context);
    return rendezvous.identity();
}

}  // namespace tutti
