#include "bootstrap/auth.hpp"

#include <sodium.h>

#include <algorithm>

#include "base/os.hpp"
#include "base/result.hpp"

namespace tutti::bootstrap {
namespace {

constexpr std::array<unsigned char, 8> hello_magic = {'T', 'U', 'T', 'T', 'I', '-', '2', '\n'};

const unsigned char* raw(View v) {
    return reinterpret_cast<const unsigned char*>(v.data());
}
unsigned char* raw_out(std::span<std::byte> v) {
    return reinterpret_cast<unsigned char*>(v.data());
}

template <std::size_t size>
std::array<std::byte, size> keyed_hash(const Secret& key, std::string_view label, View context) {
    std::array<std::byte, size> out;
    crypto_generichash_state state;
    crypto_generichash_init(&state, raw(key.view()), Secret::size, size);
    const std::uint64_t length = label.size();  // so that no label can be mistaken for another one's beginning
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&length), sizeof length);
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(label.data()), label.size());
    crypto_generichash_update(&state, raw(context), context.size());
    crypto_generichash_final(&state, raw_out(out), size);
    sodium_memzero(&state, sizeof state);
    return out;
}

}  // namespace

Secret::Secret(View bytes) {
    TUTTI_ASSERT(bytes.size() == size);
    std::copy(bytes.begin(), bytes.end(), bytes_.begin());
}

Secret::~Secret() {
    sodium_memzero(bytes_.data(), bytes_.size());
}

Secret Secret::random() {
    Secret s;
    random_bytes(s.bytes_.data(), s.bytes_.size());
    return s;
}

Secret Secret::derive(std::string_view label, View context) const {
    Secret s;
    s.bytes_ = keyed_hash<size>(*this, label, context);
    return s;
}

std::array<std::byte, 16> Secret::name(std::string_view label) const {
    return keyed_hash<16>(*this, label, {});
}

std::array<std::byte, mac_size> Seal::next(View frame) {
    std::array<std::byte, mac_size> mac;
    const std::uint64_t number = number_++;
    crypto_generichash_state state;
    crypto_generichash_init(&state, raw(key_.view()), Secret::size, mac_size);
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&number), sizeof number);
    crypto_generichash_update(&state, raw(frame), frame.size());
    crypto_generichash_final(&state, raw_out(mac), mac_size);
    return mac;
}

bool Seal::opens(View frame, View mac) {
    const auto expected = next(frame);
    return mac.size() == mac_size && sodium_memcmp(expected.data(), mac.data(), mac_size) == 0;
}

Handshake::Handshake(const Secret& secret, std::uint64_t tag, bool initiator)
    : secret_(secret), tag_(tag), initiator_(initiator) {
    random_bytes(mine_.data(), mine_.size());
}

Bytes Handshake::hello() const {
    Bytes out;
    Writer w(out);
    w.bytes(std::as_bytes(std::span(hello_magic)));
    w.bytes(mine_);
    TUTTI_ASSERT(out.size() == hello_size);
    return out;
}

bool Handshake::read_hello(View hello) {
    Reader r(hello);
    const View magic = r.bytes(hello_magic.size());
    const View nonce = r.bytes(theirs_.size());
    if (!r.ok() || !std::ranges::equal(magic, std::as_bytes(std::span(hello_magic)))) return false;
    std::copy(nonce.begin(), nonce.end(), theirs_.begin());
    return true;
}

bool Handshake::is_of_some_version(View hello) {
    const View magic = std::as_bytes(std::span(hello_magic));
    const auto version = static_cast<std::ptrdiff_t>(magic.size() - 2);  // and an end of line
    return std::equal(magic.begin(), magic.begin() + version, hello.begin(), hello.begin() + version);
}

Bytes Handshake::transcript() const {
    Bytes out;
    Writer w(out);
    w.bytes(std::as_bytes(std::span(hello_magic)));
    w.number(tag_);
    w.bytes(initiator_ ? mine_ : theirs_);
    w.bytes(initiator_ ? theirs_ : mine_);
    return out;
}

Secret Handshake::prove(bool initiator) const {
    return secret_.derive(initiator ? "tutti proof of the initiator" : "tutti proof of the responder", transcript());
}

Secret Handshake::key(bool initiator) const {
    return secret_.derive(initiator ? "tutti frames of the initiator" : "tutti frames of the responder", transcript());
}

Bytes Handshake::proof() const {
    const Secret p = prove(initiator_);
    return Bytes(p.view().begin(), p.view().end());
}

bool Handshake::check_proof(View proof) const {
    const Secret expected = prove(!initiator_);
    return proof.size() == proof_size && sodium_memcmp(expected.view().data(), proof.data(), proof_size) == 0;
}

void start_crypto() {
    static const bool started = sodium_init() >= 0;
    if (!started) fail(tuttiSystemError, "libsodium could not be initialised");
}

}  // namespace tutti::bootstrap
