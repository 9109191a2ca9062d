// Proof of knowing the job's secret, without ever sending it, and the keys that seal what follows.
//
//     initiator                                   responder
//     hello: magic, version, nonce i      ->
//                                         <-      hello: magic, version, nonce r; proof(responder, i, r)
//     proof(initiator, i, r)              ->
//     sealed frames                       <->     sealed frames
//
// A proof is BLAKE2b-256 keyed with the secret over the role, the listener's tag and both nonces: the role keeps a
// proof from being reflected, the tag keeps a connection from being relayed to another listener of the job, the nonces
// keep a recording from being of use. Each direction has its own key, and each frame its number, so frames cannot be
// forged, dropped, repeated or moved without notice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bootstrap/wire.hpp"

namespace tutti::bootstrap {

/// Pages that core dumps leave out, wiped when they are given back.
void* take_pages(std::size_t bytes);
void give_back_pages(void* pages, std::size_t bytes);

/// 32 bytes that are wiped when they go, in memory that core dumps leave out.
class Secret {
  public:
    static constexpr std::size_t size = 32;
    Secret();  // zeros
    explicit Secret(View bytes);
    Secret(const Secret& other) : Secret(other.view()) {}
    Secret& operator=(const Secret& other);
    ~Secret();

    View view() const { return {bytes_, size}; }
    static Secret random();

    /// Another secret, which tells nothing about this one; the label says what it is for.
    Secret derive(std::string_view label, View context = {}) const;

    /// 16 bytes for a name; they tell nothing about the secret.
    std::array<std::byte, 16> name(std::string_view label) const;

  private:
    std::byte* bytes_;
};

inline constexpr std::size_t hello_size = 40;
inline constexpr std::size_t proof_size = 32;
inline constexpr std::size_t mac_size = 16;

/// Seals the frames of one direction of one connection, or checks them: each call uses up the next number.
class Seal {
  public:
    Seal() = default;
    explicit Seal(Secret key) : key_(key) {}
    std::array<std::byte, mac_size> next(View frame);
    bool opens(View frame, View mac);

  private:
    Secret key_;
    std::uint64_t number_ = 0;
};

class Handshake {
  public:
    /// tag: which listener of the job this is about; both sides know it beforehand.
    Handshake(const Secret& secret, std::uint64_t tag, bool initiator);

    Bytes hello() const;
    /// False if these are not the first bytes of a peer that speaks this version.
    bool read_hello(View hello);
    /// Whether they begin as those of all versions do.
    static bool is_of_some_version(View hello);
    Bytes proof() const;
    bool check_proof(View proof) const;
    bool is_initiator() const { return initiator_; }
    Secret outgoing_key() const { return key(initiator_); }
    Secret incoming_key() const { return key(!initiator_); }
    Seal outgoing() const { return Seal(outgoing_key()); }
    Seal incoming() const { return Seal(incoming_key()); }

  private:
    Secret prove(bool initiator) const;
    Secret key(bool initiator) const;
    Bytes transcript() const;

    Secret secret_;
    std::uint64_t tag_;
    bool initiator_;
    std::array<std::byte, 32> mine_{}, theirs_{};
};

/// Must have run before anything else of libsodium; cheap when it has.
void start_crypto();

}  // namespace tutti::bootstrap
