// What the fuzzer and the tests do to the parser of frames: whatever the bytes are, it must not crash, read past the
// end, or accept something that it would write in another way.
#pragma once

#include "base/result.hpp"
#include "bootstrap/frame.hpp"

namespace tutti::test {

/// Reads bytes as a stream of frames, as a connection does, but for the seals. How many messages were accepted.
inline int read_frames(bootstrap::View bytes) {
    using namespace bootstrap;
    int accepted = 0;
    Frame frame;
    while (split_frame(bytes, frame) == Split::complete) {
        TUTTI_ASSERT(frame.size() <= bytes.size() && frame.size() <= 2048);
        if (const std::optional<Message> message = parse(frame.kind, frame.payload)) {
            ++accepted;
            const Bytes again = encode(*message);
            Frame second;
            Bytes sealed = again;
            sealed.resize(sealed.size() + mac_size);
            TUTTI_ASSERT(split_frame(sealed, second) == Split::complete);
            const std::optional<Message> reread = parse(second.kind, second.payload);
            TUTTI_ASSERT(reread && reread->index() == message->index() && encode(*reread) == again);
        }
        bytes = bytes.subspan(frame.size());
    }
    return accepted;
}

}  // namespace tutti::test
