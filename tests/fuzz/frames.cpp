// The messages of the control channel, behind their seals.
#include "bootstrap/frame.hpp"
#include "fuzz.hpp"

using namespace tutti;
using namespace tutti::bootstrap;

namespace {

/// What is accepted is written as it was read.
void check(const std::optional<Message>& message) {
    if (!message) return;
    const Bytes again = encode(*message);
    Bytes sealed = again;
    sealed.resize(sealed.size() + mac_size);
    Frame frame;
    TUTTI_ASSERT(split_frame(sealed, frame) == Split::complete && frame.size() == sealed.size());
    const std::optional<Message> reread = parse(frame.kind, frame.payload);
    TUTTI_ASSERT(reread && reread->index() == message->index() && encode(*reread) == again);
    for (const int ranks : {1, 4, ranks_limit}) fits(*message, ranks);
    TUTTI_ASSERT(fits(*message, ranks_limit));
}

}  // namespace

FUZZ_TARGET(frames) {
    const bool stream = in.flag();
    if (!stream) {
        const auto kind = in.number<std::uint8_t>();
        return check(parse(kind, in.bytes(4096)));
    }
    View bytes = in.bytes(1 << 16);
    for (Frame frame; split_frame(bytes, frame) == Split::complete; bytes = bytes.subspan(frame.size())) {
        TUTTI_ASSERT(frame.size() <= bytes.size() && frame.size() <= 2048);
        check(parse(frame.kind, frame.payload));
    }
}
