// The handshake and the seals behind it, against somebody on the way who changes some bytes of what two ranks say.
#include "bootstrap/auth.hpp"
#include "bootstrap/frame.hpp"
#include "fuzz.hpp"

using namespace tutti;
using namespace tutti::bootstrap;

namespace {

/// Some of the bytes, changed; whether any is.
bool change(Bytes& bytes, fuzz::Input& in) {
    const Bytes before = bytes;
    for (unsigned changes = in.below(4); changes > 0; --changes) {
        if (bytes.empty()) break;
        bytes[in.number<std::uint16_t>() % bytes.size()] ^= static_cast<std::byte>(in.number<std::uint8_t>());
    }
    if (in.below(8) == 1) bytes.resize(in.number<std::uint8_t>() % (bytes.size() + 1));  // cut off
    return bytes != before;
}

}  // namespace

FUZZ_TARGET(handshake) {
    start_crypto();
    const std::uint8_t key[Secret::size] = {1};
    const Secret secret(std::as_bytes(std::span(key))), other = in.flag() ? secret : Secret();
    const bool same = other.view()[0] == secret.view()[0];
    Handshake a(secret, 7, true), b(other, in.below(8) == 1 ? 8 : 7, false);
    Bytes hello = a.hello(), answer = b.hello();
    const bool changed = change(hello, in);
    const bool changed_answer = change(answer, in);
    if (hello.size() >= hello_size) Handshake::is_of_some_version(hello);
    const bool read = b.read_hello(hello), read_answer = a.read_hello(answer);
    TUTTI_ASSERT(changed || (read && hello.size() == hello_size));
    TUTTI_ASSERT(changed_answer || read_answer);
    if (!read || !read_answer) return;
    Bytes proof = b.proof();
    const bool lie = change(proof, in);
    const bool good = a.check_proof(proof);
    TUTTI_ASSERT(!good || (!changed && !changed_answer && !lie && same));
    TUTTI_ASSERT(!a.check_proof(a.proof()));  // reflected
    if (!good) return;
    TUTTI_ASSERT(b.check_proof(a.proof()));
    Seal sealing = a.outgoing(), opening = b.incoming();
    for (int frames = 0; frames < 8 && !in.empty(); ++frames) {
        const View content = in.bytes(in.number<std::uint8_t>());
        Bytes frame(content.begin(), content.end());
        const auto mac = sealing.next(frame);
        Bytes seal(mac.begin(), mac.end());
        const bool other_frame = change(frame, in), other_seal = change(seal, in);
        TUTTI_ASSERT(opening.opens(frame, seal) == (!other_frame && !other_seal));
    }
}
