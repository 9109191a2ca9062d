#include "dp/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "dp/json.hpp"

namespace tutti::dp {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

// By DataType.
constexpr const char* type_names[] = {"I8",  "U8",  "I32", "U32",  "I64",     "U64",
                                      "F16", "F32", "F64", "BF16", "F8_E4M3", "F8_E5M2"};
static_assert(sizeof type_names / sizeof *type_names == data_types);

DataType type_named(const std::string& name, const Fields& fields) {
    for (int t = 0; t < data_types; ++t)
        if (name == type_names[t]) return static_cast<DataType>(t);
    fields.wrong("the type " + name + " is unknown");
}

/// An odd number for each place, from Vigna's splitmix64 (public domain).
constexpr std::uint64_t weight(std::uint64_t place) {
    std::uint64_t x = place * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    return (x ^ x >> 27) | 1;
}

// A word's weight is the weight of its place in the row times the weight of the row. So each word takes one
// multiplication.
constexpr std::size_t row = 128;  // words
constexpr auto weights_in_row = [] {
    std::array<std::uint64_t, row> all{};
    for (std::size_t i = 0; i < row; ++i) all[i] = weight(i + 1);
    return all;
}();

std::uint64_t weight_of_row(std::uint64_t its) {
    return weight(its + row + 1);
}

/// The sum of whole words, of which the first is word number `place` of the tensor.
std::uint64_t sum_of_words(const std::byte* data, std::uint64_t place, std::size_t words) {
    const auto product = [&](std::size_t in_row) {
        std::uint64_t word;
        std::memcpy(&word, data, 8);
        data += 8;
        asm("" : "+r"(word));  // prevents vectorisation: SIMD has no 64-bit multiplication and would need six
        return word * weights_in_row[in_row];
    };
    std::uint64_t sum = 0;
    for (std::size_t in_row = place % row; words > 0; in_row = 0, place += row) {
        const std::size_t end = std::min(row, in_row + words);
        words -= end - in_row;
        std::uint64_t even = 0, odd = 0;
        for (; in_row + 1 < end; in_row += 2) even += product(in_row), odd += product(in_row + 1);
        if (in_row < end) even += product(in_row);
        sum += (even + odd) * weight_of_row(place / row);
    }
    return sum;
}

Tensor tensor_from(const std::string& name, const Json& its, std::uint64_t begins, const std::string& path) {
    const Fields fields(its, path);
    Tensor t;
    t.name = name;
    t.type = type_named(fields.words(fields.at("dtype"), "dtype"), fields);
    const std::vector<Json>&shape = fields.list("shape").items, &offsets = fields.list("data_offsets").items;
    if (offsets.size() != 2) fields.wrong("'" + name + "' has no place");
    std::uint64_t count = 1;
    for (const Json& dimension : shape) {
        t.shape.push_back(fields.number(dimension, "shape", SIZE_MAX / 64));
        if (__builtin_mul_overflow(count, t.shape.back(), &count) || count > SIZE_MAX / 64)
            fields.wrong("'" + name + "' has more elements than there can be");
    }
    t.count = count;
    const std::uint64_t from = fields.number(offsets[0], "data_offsets", UINT64_MAX / 2);
    const std::uint64_t to = fields.number(offsets[1], "data_offsets", UINT64_MAX / 2);
    if (to < from || to - from != t.bytes()) fields.wrong("'" + name + "' has not as many bytes as its shape says");
    t.at = begins + from;
    return t;
}

}  // namespace

std::string safetensors_head(std::vector<Tensor>& tensors) {
    std::vector<Tensor*> order;
    for (Tensor& t : tensors) order.push_back(&t);
    std::ranges::stable_sort(order, std::ranges::greater{}, [](const Tensor* t) { return size_of(t->type); });
    Json header, format;
    format.add("format", json_text("pt"));
    header.add("__metadata__", std::move(format));
    std::uint64_t at = 0;
    for (Tensor* t : order) {
        if (t->name == "__metadata__")
            fail(tuttiInvalidArgument, "tuttiDpSave: '__metadata__' is no name for a parameter: the format has it");
        Json its, shape, offsets;
        shape.kind = offsets.kind = Json::Kind::array;
        for (const std::size_t n : t->shape) shape.items.push_back(json_whole(static_cast<std::int64_t>(n)));
        for (const std::uint64_t place : {at, at + t->bytes()})
            offsets.items.push_back(json_whole(static_cast<std::int64_t>(place)));
        its.add("dtype", json_text(type_names[static_cast<int>(t->type)]));
        its.add("shape", std::move(shape));
        its.add("data_offsets", std::move(offsets));
        header.add(t->name, std::move(its));
        t->at = at;
        at += t->bytes();
    }
    std::string words = dumped(header);
    words.append((64 - (words.size() + 8) % 64) % 64, ' ');
    for (Tensor& t : tensors) t.at += 8 + words.size();
    const std::uint64_t length = words.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + words;
}

std::vector<Tensor> safetensors_from(std::string_view header, std::uint64_t file_bytes, const std::string& path) {
    const Json parsed = parse_strictly(header, path);
    const Fields fields(parsed, path);
    const std::uint64_t begins = 8 + header.size();
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < parsed.items.size(); ++i)
        if (parsed.keys[i] != "__metadata__")
            tensors.push_back(tensor_from(parsed.keys[i], parsed.items[i], begins, path));
    std::ranges::sort(tensors, {}, [](const Tensor& t) { return std::pair(t.at, t.count); });
    std::uint64_t at = begins;
    for (const Tensor& t : tensors) {
        if (t.at != at) fields.wrong("'" + t.name + "' does not begin where the tensor before it ends");
        at += t.bytes();
    }
    if (at != file_bytes)
        fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is torn: it has %" PRIu64 " bytes, and tensors for %" PRIu64,
             path.c_str(), file_bytes, at);
    return tensors;
}

std::uint64_t sum_of(const std::byte* data, std::uint64_t at, std::size_t bytes) {
    const auto part = [](const std::byte* from, std::uint64_t its_place, std::size_t n) {  // bytes within one word
        std::uint64_t word = 0;
        std::memcpy(reinterpret_cast<std::byte*>(&word) + its_place % 8, from, n);
        return sum_of_words(reinterpret_cast<const std::byte*>(&word), its_place / 8, 1);
    };
    const std::size_t head = std::min<std::size_t>((8 - at % 8) % 8, bytes), tail = (bytes - head) % 8;
    std::uint64_t sum = sum_of_words(data + head, (at + head) / 8, (bytes - head) / 8);
    if (head > 0) sum += part(data, at, head);
    if (tail > 0) sum += part(data + (bytes - tail), at + bytes - tail, tail);
    return sum;
}

}  // namespace tutti::dp
