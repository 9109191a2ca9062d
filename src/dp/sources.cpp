#include "dp/sources.hpp"

#include <algorithm>
#include <cinttypes>

#include "base/files.hpp"
#include "base/result.hpp"

namespace tutti::dp {
namespace {

constexpr std::size_t summed = std::size_t{1} << 18;      // is summed while it is in a cache
constexpr std::size_t asked_once = std::size_t{8} << 20;  // that the disk is asked for at once
constexpr std::size_t asked_ahead = 4 * asked_once;       // that it is asked for before it is read

}  // namespace

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

void Reading::add(const Source& source, const Tensor& wanted, std::uint64_t first, std::byte* into, std::size_t bytes,
                  std::uint64_t& sum) {
    parts_.push_back({&source, source.find(wanted).at + first, first, into, bytes, &sum});
}

void Reading::run() {
    for (const Part& part : parts_)
        for (std::size_t i = 0; i < part.bytes; i += summed) {
            ask();
            const std::size_t n = std::min(summed, part.bytes - i);
            read_at(part.source->fd, part.at + i, part.into + i, n, part.source->path);
            *part.sum += sum_of(part.into + i, part.first + i, n);
            read_ += n;
        }
}

void Reading::ask() {
    while (next_ < parts_.size() && asked_ < read_ + asked_ahead) {
        const Part& part = parts_[next_];
        const std::size_t n = std::min(asked_once, part.bytes - asked_of_next_);
        if (n > 0) begin_to_read(part.source->fd, part.at + asked_of_next_, n);
        asked_ += n;
        asked_of_next_ += n;
        if (asked_of_next_ == part.bytes) ++next_, asked_of_next_ = 0;
    }
}

}  // namespace tutti::dp
