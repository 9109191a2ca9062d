#include "dp/sources.hpp"

#include <algorithm>
#include <cinttypes>

#include "base/files.hpp"
#include "base/result.hpp"

namespace tutti::dp {
Source::Source(const std::string& its_path) : path(its_path), fd(open_file(path, false)) {
    const std::uint64_t bytes = size_of_file(fd, path);
    std::uint64_t length = 0;
    if (bytes >= 8) read_at(fd, 0, &length, 8, path);
    if (bytes < 8 || length > largest_header || length > bytes - 8)
        fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is torn: it has %" PRIu64 " bytes, and no room for its header",
             path.c_str(), bytes);
    std::string header(length, '\0');
    read_at(fd, 8, header.data(), length, path);
    tensors = safetensors_from(header, bytes, path);
    for (std::size_t t = 0; t < tensors.size(); ++t) places[tensors[t].name] = t;
}

const Tensor& Source::named(const std::string& name) const {
    const auto at = places.find(name);
    if (at == places.end()) fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' has no '%s'", path.c_str(), name.c_str());
    return tensors[at->second];
}

const Tensor& Source::find(const Tensor& wanted) const {
    const Tensor& found = named(wanted.name);
    if (found.type != wanted.type || found.count != wanted.count)
        fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is %s[%zu] here, in '%s' it is %s[%zu]", wanted.name.c_str(),
             std::string(name_of(wanted.type)).c_str(), wanted.count, path.c_str(),
             std::string(name_of(found.type)).c_str(), found.count);
    return found;
}

std::uint64_t Source::read(const Tensor& tensor, std::uint64_t first, std::byte* into, std::size_t bytes) const {
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < bytes; i += summed_once) {
        const std::size_t n = std::min(summed_once, bytes - i);
        read_at(fd, tensor.at + first + i, into + i, n, path);
        all += sum_of(into + i, first + i, n);
    }
    return all;
}

std::uint64_t Source::sum(const Tensor& tensor, std::uint64_t first, std::size_t bytes,
                          std::span<std::byte> scratch) const {
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < bytes; i += scratch.size())
        all += read(tensor, first + i, scratch.data(), std::min(scratch.size(), bytes - i));
    return all;
}

}  // namespace tutti::dp
