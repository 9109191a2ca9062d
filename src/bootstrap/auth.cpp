#include "bootstrap/auth.hpp"

#include <pthread.h>
#include <sodium.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/os.hpp"
#include "base/result.hpp"

namespace tutti::bootstrap {
namespace {

constexpr std::array<unsigned char, 8> hello_magic = {'T', 'U', 'T', 'T', 'I', '-', '3', '\n'};

const unsigned char* raw(View v) {
    return reinterpret_cast<const unsigned char*>(v.data());
}
unsigned char* raw_out(std::span<std::byte> v) {
    return reinterpret_cast<unsigned char*>(v.data());
}

/// An allocator of cells for secrets. Its pages are never unmapped. For any thread.
class Vault {
  public:
    static std::byte* take() {
        const std::lock_guard lock(mutex());
        std::vector<std::byte*>& free = cells();
        if (free.empty()) {
            constexpr std::size_t more = 1 << 14;
            free.reserve(free.capacity() + more / Secret::size);  // for all that there are: give_back() needs no memory
            auto* const pages = static_cast<std::byte*>(take_pages(more));
            for (std::size_t at = 0; at < more; at += Secret::size) free.push_back(pages + at);
        }
        std::byte* const cell = free.back();
        free.pop_back();
        return cell;
    }
    static void give_back(std::byte* cell) {
        sodium_memzero(cell, Secret::size);
        const std::lock_guard lock(mutex());
        cells().push_back(cell);
    }

  private:
    static std::vector<std::byte*>& cells() {
        static auto* const free = new std::vector<std::byte*>;  // outlives all secrets
        return *free;
    }
    /// Held by the forking thread during fork(), so that it is free in the child.
    static std::mutex& mutex() {
        static std::mutex m;
        static const int registered = pthread_atfork([] { m.lock(); }, [] { m.unlock(); }, [] { m.unlock(); });
        static_cast<void>(registered);
        return m;
    }
};

void keyed_hash(std::span<std::byte> out, const Secret& key, std::string_view label, View context) {
    crypto_generichash_state state;
    crypto_generichash_init(&state, raw(key.view()), Secret::size, out.size());
    const std::uint64_t length = label.size();  // so that no label can be mistaken for another one's beginning
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&length), sizeof length);
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(label.data()), label.size());
    crypto_generichash_update(&state, raw(context), context.size());
    crypto_generichash_final(&state, raw_out(out), out.size());
    sodium_memzero(&state, sizeof state);
}

}  // namespace

void* take_pages(std::size_t bytes) {
    void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) fail_errno("no memory for keys");
    madvise(pages, bytes, MADV_DONTDUMP);
    return pages;
}

void give_back_pages(void* pages, std::size_t bytes) {
    sodium_memzero(pages, bytes);
    munmap(pages, bytes);
}

Secret::Secret() : bytes_(Vault::take()) {}

Secret::Secret(View bytes) : Secret() {
    TUTTI_ASSERT(bytes.size() == size);
    std::ranges::copy(bytes, bytes_);
}

Secret& Secret::operator=(const Secret& other) {
    std::memmove(bytes_, other.bytes_, size);
    return *this;
}

Secret::~Secret() {
    Vault::give_back(bytes_);
}

Secret Secret::random() {
    Secret s;
    random_bytes(s.bytes_, size);
    return s;
}

Secret Secret::derive(std::string_view label, View context) const {
    Secret s;
    keyed_hash({s.bytes_, size}, *this, label, context);
    return s;
}

std::array<std::byte, 16> Secret::name(std::string_view label) const {
    std::array<std::byte, 16> name;
    keyed_hash(name, *this, label, {});
    return name;
}

std::array<std::byte, mac_size> Seal::next(View frame) {
    std::array<std::byte, mac_size> mac;
    const std::uint64_t number = number_++;
    crypto_generichash_state state;
    crypto_generichash_init(&state, raw(key_.view()), Secret::size, mac_size);
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&number), sizeof number);
    crypto_generichash_update(&state, raw(frame), frame.size());
    crypto_generichash_final(&state, raw_out(mac), mac_size);
    sodium_memzero(&state, sizeof state);
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
