#include "fatbin.hpp"

#include <cstdint>
#include <cstring>
#include <stdexcept>

#ifdef TUTTI_ZSTD
#include <zstd.h>
#endif

namespace tutti::on_hosts {
namespace {

struct Wrapper {
    std::uint32_t magic, version;
    const unsigned char* container;
    const void* linked;
};
struct Container {
    std::uint32_t magic;
    std::uint16_t version, header_bytes;
    std::uint64_t bytes;  // of the entries
};
struct Entry {
    std::uint16_t kind, version;
    std::uint32_t header_bytes;
    std::uint64_t bytes;  // behind the header
    std::uint32_t compressed_bytes, reserved[2], architecture;
    std::uint64_t more[2];
    std::uint64_t reserved_too;
    std::uint64_t uncompressed_bytes;
};
static_assert(sizeof(Container) == 16 && sizeof(Entry) == 64);
constexpr std::uint16_t ptx = 1;

std::string uncompressed(const unsigned char* from, std::size_t compressed, std::size_t bytes) {
    constexpr unsigned char zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    if (compressed < sizeof zstd || std::memcmp(from, zstd, sizeof zstd) != 0)
        throw std::runtime_error("the PTX is compressed, and not by zstd: take nvcc of CUDA 12.8 or later");
#ifdef TUTTI_ZSTD
    std::string text(bytes, '\0');
    const std::size_t got = ZSTD_decompress(text.data(), text.size(), from, compressed);
    if (ZSTD_isError(got) || got != bytes) throw std::runtime_error("the compressed PTX is damaged");
    return text;
#else
    throw std::runtime_error("the PTX is compressed by zstd, and this was built without: install libzstd-dev");
#endif
}

std::string text_of(const unsigned char* at, const Entry& entry) {
    const unsigned char* const from = at + entry.header_bytes;
    std::string text = entry.compressed_bytes == 0
                           ? std::string(reinterpret_cast<const char*>(from), entry.bytes)
                           : uncompressed(from, entry.compressed_bytes, entry.uncompressed_bytes);
    return text.substr(0, text.find('\0'));
}

}  // namespace

std::string ptx_of(const void* wrapper) {
    Wrapper outer;
    std::memcpy(&outer, wrapper, sizeof outer);
    if (outer.magic != 0x466243b1) throw std::runtime_error("this is no wrapper of a fatbin");
    Container container;
    std::memcpy(&container, outer.container, sizeof container);
    if (container.magic != 0xba55ed50) throw std::runtime_error("this is no fatbin");
    const unsigned char* at = outer.container + container.header_bytes;
    const unsigned char* const end = at + container.bytes;
    const unsigned char* newest = nullptr;
    Entry entry, best{};
    for (; end - at >= static_cast<std::ptrdiff_t>(sizeof entry); at += entry.header_bytes + entry.bytes) {
        std::memcpy(&entry, at, sizeof entry);
        if (entry.kind != ptx || (newest != nullptr && entry.architecture < best.architecture)) continue;
        newest = at;
        best = entry;
    }
    if (newest == nullptr) throw std::runtime_error("the fatbin has no PTX: compile with code=compute_...");
    return text_of(newest, best);
}

}  // namespace tutti::on_hosts
