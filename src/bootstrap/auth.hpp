// How two ends prove to each other that they know the job's secret, without sending it, and derive the keys that seal
// the frames after that.
//
//     initiator                                   responder
//     hello: magic, version, nonce i      ->
//                                         <-      hello: magic, version, nonce r; proof(responder, i, r)
//     proof(initiator, i, r)              ->
//     sealed frames                       <->     sealed frames
//
// A proof is BLAKE2b-256, keyed with the secret, over the role, the listener's tag and both nonces. The role prevents
// reflection of a proof, the tag prevents relaying a connection to another listener of the job, the nonces prevent
// replay. Each direction has a key of its own and each frame a number, so frames cannot be forged, dropped, repeated or
// reordered unnoticed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bootstrap/wire.hpp"

namespace tutti::bootstrap {

/// Maps pages that core dumps leave out. Throws tuttiSystemError.
void* take_pages(std::size_t bytes);
/// Wipes and unmaps them.
void give_back_pages(void* pages, std::size_t bytes);

/// 32 bytes in memory that core dumps leave out. The destructor wipes them.
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

    /// Derives another secret, from which this one can't be computed. label: its purpose.
    Secret derive(std::string_view label, View context = {}) const;

    /// 16 bytes for a name, from which the secret can't be computed.
    std::array<std::byte, 16> name(std::string_view label) const;

  private:
    std::byte* bytes_;
};

inline constexpr std::size_t hello_size = 40;
inline constexpr std::size_t proof_size = 32;
inline constexpr std::size_t mac_size = 16;

/// Seals the frames of one direction of a connection, or checks them. Each call uses the next frame number.
class Seal {
  public:
    Seal() = default;
    explicit Seal(Secret key) : key_(key) {}
    /// The seal of a frame (its header and payload).
    std::array<std::byte, mac_size> next(View frame);
    /// Whether mac is the seal of the frame.
    bool opens(View frame, View mac);

  private:
    Secret key_;
    std::uint64_t number_ = 0;
};

class Handshake {
  public:
    /// tag: identifies the listener within the job. Both ends know it beforehand.
    Handshake(const Secret& secret, std::uint64_t tag, bool initiator);

    Bytes hello() const;
    /// Takes the peer's hello. False if it is not one of this protocol version.
    bool read_hello(View hello);
    /// Whether these bytes begin like a hello of any version.
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

/// Initialises libsodium, before any other use of it; cheap after the first call. Throws tuttiSystemError.
void start_crypto();

}  // namespace tutti::bootstrap
