#include "transport/tcp/cipher.hpp"

#include <sodium.h>

#include <cstring>

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

/// The key schedule, wiped when it goes, where core dumps leave it out.
struct Cipher::Aes {
    crypto_aead_aes256gcm_state state;
    static void* operator new(std::size_t bytes) { return bootstrap::take_pages(bytes); }
    static void operator delete(void* memory, std::size_t bytes) { bootstrap::give_back_pages(memory, bytes); }
};

std::uint8_t Cipher::available() {
    bootstrap::start_crypto();
    return static_cast<std::uint8_t>(xchacha | (crypto_aead_aes256gcm_is_available() == 1 ? aes : none));
}

Cipher::Kind Cipher::choose(std::uint8_t one, std::uint8_t other) {
    return (one & other & aes) != 0 ? aes : xchacha;
}

Cipher::Cipher(Kind kind, const bootstrap::Secret& key) : kind_(kind), key_(key.derive("tutti data")) {
    static_assert(crypto_aead_xchacha20poly1305_ietf_NPUBBYTES == sizeof nonce_);
    if (kind != aes) return;
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
    if (kind_ == aes)
        crypto_aead_aes256gcm_encrypt_afternm(raw(out), nullptr, raw(plain), plain.size(), nullptr, 0, nullptr,
                                              nonce_.data(), &aes_->state);
    else
        crypto_aead_xchacha20poly1305_ietf_encrypt(raw(out), nullptr, raw(plain), plain.size(), nullptr, 0, nullptr,
                                                   nonce_.data(), raw(key_.view()));
}

bool Cipher::open(bootstrap::View sealed, std::byte* out) {
    next_nonce();
    if (kind_ == aes)
        return crypto_aead_aes256gcm_decrypt_afternm(raw(out), nullptr, nullptr, raw(sealed), sealed.size(), nullptr, 0,
                                                     nonce_.data(), &aes_->state) == 0;
    return crypto_aead_xchacha20poly1305_ietf_decrypt(raw(out), nullptr, nullptr, raw(sealed), sealed.size(), nullptr,
                                                      0, nonce_.data(), raw(key_.view())) == 0;
}

}  // namespace tutti::tcp
