// Encryption, or authentication alone, of one direction of one data socket: each call seals or opens the next message.
// Keys are of that connection and direction alone, so a count is a nonce that never comes twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/config.hpp"
#include "bootstrap/auth.hpp"

namespace tutti::tcp {

class Cipher {
  public:
    /// Bits: the algorithm, and whether the message is sealed in the clear, by its MAC alone.
    enum Kind : std::uint8_t { none = 0, xchacha = 1, aes = 2, in_clear = 4, xchacha_mac = 5, aes_mac = 6 };
    static constexpr std::size_t extra = 16;  // bytes more when sealed: the MAC

    /// The algorithms that this machine has, as bits: AES-256-GCM where the processor helps.
    static std::uint8_t available();
    /// What two ranks use that have these; the same on both.
    static Kind choose(Protection wanted, std::uint8_t one, std::uint8_t other);
    /// Whether such a number is a kind that this machine has.
    static bool has(std::uint8_t kind);
    static Protection protection(Kind kind);
    /// For the log.
    static const char* describe(Kind kind);

    /// key: of the handshake.
    Cipher(Kind kind, const bootstrap::Secret& key);
    ~Cipher();

    /// out: plain.size() + extra bytes.
    void seal(bootstrap::View plain, std::byte* out);
    /// out: sealed.size() - extra bytes. False if anybody has touched it.
    bool open(bootstrap::View sealed, std::byte* out);

  private:
    struct Aes;
    void next_nonce();
    void encrypt(bootstrap::View plain, std::byte* out, bootstrap::View seen);
    bool decrypt(bootstrap::View sealed, std::byte* out, bootstrap::View seen);

    const Kind kind_;
    const bootstrap::Secret key_;
    std::uint64_t number_ = 0;
    std::array<unsigned char, 24> nonce_{};
    std::unique_ptr<Aes> aes_;
};

}  // namespace tutti::tcp
