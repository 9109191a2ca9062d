#include "transport/tcp/cipher.hpp"

#include <sodium.h>

#include <cstring>

#include "base/result.hpp"

namespace tutti::tcp {
namespace {

const unsigned char* raw(bootstrap::View v) {
    return reinterpret_cast<const unsigned char*>(v.data());
}
unsigned char* raw(std::byte* out) {
    return reinterpret_cast<unsigned char*>(out);
}

static_assert(crypto_aead_xchacha20poly1305_ietf_ABYTES == Cipher::extra &&
              crypto_aead_aes256gcm_ABYTES == Cipher::extra);
static_assert(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == bootstrap::Secret::size &&
              crypto_aead_aes256gcm_KEYBYTES == bootstrap::Secret::size);

}  // namespace

/// The key schedule. Its pages are left out of core dumps, and wiped when it is destroyed.
struct Cipher::Aes {
    crypto_aead_aes256gcm_state state;
    static void* operator new(std::size_t bytes) { return bootstrap::take_pages(bytes); }
    static void operator delete(void* memory, std::size_t bytes) { bootstrap::give_back_pages(memory, bytes); }
};

std::uint8_t Cipher::available() {
    bootstrap::start_crypto();
    return static_cast<std::uint8_t>(xchacha | (crypto_aead_aes256gcm_is_available() == 1 ? aes : none));
}

Cipher::Kind Cipher::choose(Protection wanted, std::uint8_t one, std::uint8_t other) {
    if (wanted == Protection::none) return none;
    const Kind algorithm = (one & other & aes) != 0 ? aes : xchacha;
    return wanted == Protection::mac ? static_cast<Kind>(algorithm | in_clear) : algorithm;
}

bool Cipher::has(std::uint8_t kind) {
    if (kind == none) return true;
    const int algorithm = kind & ~in_clear;
    return (algorithm == xchacha || algorithm == aes) && (available() & algorithm) != 0;
}

Protection Cipher::protection(Kind kind) {
    if (kind == none) return Protection::none;
    return (kind & in_clear) != 0 ? Protection::mac : Protection::encrypted;
}

const char* Cipher::describe(Kind kind) {
    switch (kind) {
        case xchacha:
            return "encrypted by XChaCha20-Poly1305";
        case aes:
            return "encrypted by AES-256-GCM";
        case xchacha_mac:
            return "in the clear, authenticated by Poly1305";
        case aes_mac:
            return "in the clear, authenticated by AES-256-GMAC";
        default:
            return "in the clear";
    }
}

Cipher::Cipher(Kind kind, const bootstrap::Secret& key) : kind_(kind), key_(key.derive("tutti data")) {
    static_assert(crypto_aead_xchacha20poly1305_ietf_NPUBBYTES == sizeof nonce_);
    if ((kind & aes) == 0) return;
    aes_ = std::make_unique<Aes>();
    crypto_aead_aes256gcm_beforenm(&aes_->state, raw(key_.view()));
}

Cipher::~Cipher() = default;

void Cipher::next_nonce() {
    std::memcpy(nonce_.data(), &number_, sizeof number_);
    ++number_;
}

void Cipher::seal(bootstrap::View plain, std::byte* out) {
    next_nonce();
    if ((kind_ & in_clear) == 0) return encrypt(plain, out, {});
    if (!plain.empty()) std::memcpy(out, plain.data(), plain.size());
    encrypt({}, out + plain.size(), {out, plain.size()});  // the MAC of the copy: the sender may change the original
}

bool Cipher::open(bootstrap::View sealed, std::byte* out) {
    TUTTI_ASSERT(sealed.size() >= extra);
    next_nonce();
    if ((kind_ & in_clear) == 0) return decrypt(sealed, out, {});
    const std::size_t bytes = sealed.size() - extra;
    if (!decrypt(sealed.subspan(bytes), nullptr, sealed.first(bytes))) return false;
    if (bytes > 0) std::memcpy(out, sealed.data(), bytes);
    return true;
}

/// seen: data that the MAC covers too, and that travels in the clear.
void Cipher::encrypt(bootstrap::View plain, std::byte* out, bootstrap::View seen) {
    if ((kind_ & aes) != 0)
        crypto_aead_aes256gcm_encrypt_afternm(raw(out), nullptr, raw(plain), plain.size(), raw(seen), seen.size(),
                                              nullptr, nonce_.data(), &aes_->state);
    else
        crypto_aead_xchacha20poly1305_ietf_encrypt(raw(out), nullptr, raw(plain), plain.size(), raw(seen), seen.size(),
                                                   nullptr, nonce_.data(), raw(key_.view()));
}

bool Cipher::decrypt(bootstrap::View sealed, std::byte* out, bootstrap::View seen) {
    if ((kind_ & aes) != 0)
        return crypto_aead_aes256gcm_decrypt_afternm(raw(out), nullptr, nullptr, raw(sealed), sealed.size(), raw(seen),
                                                     seen.size(), nonce_.data(), &aes_->state) == 0;
    return crypto_aead_xchacha20poly1305_ietf_decrypt(raw(out), nullptr, nullptr, raw(sealed), sealed.size(), raw(seen),
                                                      seen.size(), nonce_.data(), raw(key_.view())) == 0;
}

}  // namespace tutti::tcp
