// Checkpoints: headers of safetensors files, and the index.
#include "dp/safetensors.hpp"
#include "dp/saved.hpp"
#include "fuzz.hpp"

using namespace tutti;
using namespace tutti::dp;

namespace {

void read_header(const std::string& header, std::uint64_t bytes) {
    fuzz::accepts([&] {
        std::uint64_t at = 8 + header.size();
        std::vector<Tensor> tensors = safetensors_from(header, bytes, "file");
        for (const Tensor& t : tensors) {
            TUTTI_ASSERT(t.at == at && t.bytes() <= bytes - at);
            at += t.bytes();
        }
        TUTTI_ASSERT(at == bytes);
        const std::string head = safetensors_head(tensors);
        const auto again =
            safetensors_from(std::string_view(head).substr(8), head.size() + bytes - 8 - header.size(), "");
        TUTTI_ASSERT(again.size() == tensors.size());
    });
}

void read_index(const std::string& index, bool hashed) {
    fuzz::accepts([&] {
        const Manifest m = manifest_from(index, "index", hashed);
        TUTTI_ASSERT(m.step >= 0);
        for (const auto* tensors : {&m.model, &m.optimizer})
            for (const auto& [name, where] : *tensors) {
                std::uint64_t number = 0;
                TUTTI_ASSERT(is_shard(where.file, &number) && number == m.number);
                TUTTI_ASSERT(where.file.find('/') == std::string::npos);
            }
        const std::string again = text_of(m);
        TUTTI_ASSERT(text_of(manifest_from(again, "index")) == again);
    });
}

}  // namespace

FUZZ_TARGET(checkpoint) {
    const std::uint32_t kind = in.below(3);
    if (kind != 0) return read_index(in.rest(), kind == 1);
    const auto data = in.number<std::uint16_t>();
    const std::string header = in.rest();
    read_header(header, 8 + header.size() + data);
}
