// Of a build without CUDA. Where there is no GPU nobody calls the rest.
#include <cstdlib>

#include "gpu.hpp"

namespace gpu {

int count(int, std::string& why) {
    why = "this build of Tutti has no CUDA";
    return 0;
}

Stream make_stream(int) {
    std::abort();
}
void destroy(Stream) noexcept {
    std::abort();
}
void follow(Stream, Stream) {
    std::abort();
}
void* allocate(int, std::size_t) {
    std::abort();
}
void release(int, void*) noexcept {
    std::abort();
}
void upload(Stream, void*, const void*, std::size_t) {
    std::abort();
}
void download(Stream, void*, const void*, std::size_t) {
    std::abort();
}
void run(Stream, const kernels::Work&) {
    std::abort();
}

}  // namespace gpu
