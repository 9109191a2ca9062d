// Encrypts, or only authenticates, one direction of one data socket. Each call seals or opens the next message. Every
// connection and direction has a key of its own, so the message's number is a nonce that is never used twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/config.hpp"
#include "bootstrap/auth.hpp"

namespace tutti::tcp {

/// Owned by an Outbox, for sealing, or an Inbox, for opening. Used under the engine's lock.
class Cipher {
  public:
    /// Bits: the algorithm, and whether messages stay in the clear and only a MAC is added.
    enum Kind : std::uint8_t { none = 0, xchacha = 1, aes = 2, in_clear = 4, xchacha_mac = 5, aes_mac = 6 };
    static constexpr std::size_t extra = 16;  // bytes that sealing adds: the MAC

    /// The algorithms that this machine has, as bits of Kind. AES-256-GCM needs the processor's support.
    static std::uint8_t available();
    /// The kind that two ranks use. one, other: what available() returned on each; their order does not matter.
    static Kind choose(Protection wanted, std::uint8_t one, std::uint8_t other);
    /// Whether `kind`, which a peer may have sent, is a Kind that this machine has.
    static bool has(std::uint8_t kind);
    static Protection protection(Kind kind);
    /// For the log.
    static const char* describe(Kind kind);

    /// kind: not none. key: this direction's, from the handshake; the cipher's own key is derived from it.
    Cipher(Kind kind, const bootstrap::Secret& key);
    ~Cipher();

    /// Seals the next message. out: plain.size() + extra bytes.
    void seal(bootstrap::View plain, std::byte* out);
    /// Opens the next message. out: sealed.size() - extra bytes. False if the message was changed on its way.
    bool open(bootstrap::View sealed, std::byte* out);

  private:
    struct Aes;
    void next_nonce();
    void encrypt(bootstrap::View plain, std::byte* out, bootstrap::View seen);
    bool decrypt(bootstrap::View sealed, std::byte* out, bootstrap::View seen);

    const Kind kind_;
    const bootstrap::Secret key_;
    std::uint64_t number_ = 0;  // of the next message
    std::array<unsigned char, 24> nonce_{};
    std::unique_ptr<Aes> aes_;  // nullptr unless kind_ is AES
};

}  // namespace tutti::tcp
