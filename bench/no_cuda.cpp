// Of a build without CUDA. Where there is no device nobody calls the rest.
#include <cstdlib>

#include "cuda.hpp"

namespace perf::cuda {

int devices(int, std::string& why) {
    why = "this build of Tutti has no CUDA";
    return 0;
}

std::string name_of(int) {
    std::abort();
}
void use(int) {
    std::abort();
}
std::byte* allocate(int, std::size_t) {
    std::abort();
}
void release(int, std::byte*) {
    std::abort();
}
void upload(int, std::byte*, const void*, std::size_t) {
    std::abort();
}
void download(int, void*, const std::byte*, std::size_t) {
    std::abort();
}
void fill(int, std::byte*, std::byte, std::size_t) {
    std::abort();
}
double copy_seconds(int, std::byte*, const std::byte*, std::size_t) {
    std::abort();
}
void* make_stream(int) {
    std::abort();
}
void destroy_stream(int, void*) {
    std::abort();
}
bool idle(int, void*) {
    std::abort();
}
void begin_capture(int, void*) {
    std::abort();
}
void* end_capture(int, void*) {
    std::abort();
}
void* upload_graph(int, void*, void*) {
    std::abort();
}
void replay(int, void*, void*) {
    std::abort();
}
void destroy_graph(void*) {
    std::abort();
}

}  // namespace perf::cuda
