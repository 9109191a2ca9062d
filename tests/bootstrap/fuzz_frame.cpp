// libFuzzer on the parser of frames: `ninja -C build fuzz-frame && build/tests/bootstrap/fuzz-frame`, built with clang.
#include "frame_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tutti::test::read_frames(std::as_bytes(std::span(data, size)));
    return 0;
}
