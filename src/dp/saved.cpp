#include "dp/saved.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cinttypes>
#include <climits>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/result.hpp"
#include "dp/hash.hpp"

namespace tutti::dp {
namespace {

constexpr std::string_view title = "tutti-checkpoint 1\n";
constexpr long long most_steps = 1LL << 62;

/// The lines of a text, one after the other.
class Lines {
  public:
    Lines(std::string_view text, const std::string& path) : left_(text), path_(path) {}

    bool at_end() const { return left_.empty(); }

    /// Behind the key of the next line, if it has that.
    std::optional<std::string_view> words(std::string_view key) {
        if (!left_.starts_with(key) || left_.substr(key.size(), 1) != " ") return std::nullopt;
        const std::string_view line = left_.substr(0, left_.find('\n'));
        left_.remove_prefix(std::min(left_.size(), line.size() + 1));
        ++line_;
        return line.substr(key.size() + 1);
    }

    /// The next line, which is "key number".
    template <class Number>
    Number number(std::string_view key, Number low, Number high, int base = 10) {
        const auto its = words(key);
        if (!its) wrong("'" + std::string(key) + "' was expected", line_ + 1);
        return parsed(*its, low, high, base);
    }

    /// One of the line that was taken last, and nothing else.
    template <class Number>
    Number parsed(std::string_view word, Number low, Number high, int base = 10) const {
        Number value{};
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
        if (error != std::errc() || end != word.data() + word.size() || value < low || value > high)
            wrong("a number from " + std::to_string(low) + " to " + std::to_string(high) + " was expected", line_);
        return value;
    }

    [[noreturn]] void wrong(const std::string& what) const { wrong(what, line_); }

  private:
    [[noreturn]] void wrong(const std::string& what, int line) const {
        fail(tuttiInvalidUsage, "tuttiDpLoad: '%s', line %d: %s", path_.c_str(), line, what.c_str());
    }

    std::string_view left_;
    const std::string& path_;
    int line_ = 1;  // the title
};

/// "a b" in two.
std::pair<std::string_view, std::string_view> halves(std::string_view words) {
    const std::size_t blank = std::min(words.find(' '), words.size());
    return {words.substr(0, blank), words.substr(std::min(words.size(), blank + 1))};
}

/// One record's numbers, to where this rank has the same elements.
void copy_record(const Record& record, const char* numbers, const Destination& to) {
    Restored& into = *to.restored;
    for (const Piece& piece : *to.pieces) {
        const std::size_t begin = std::max<std::size_t>(piece.first, record.first);
        const std::size_t end = std::min<std::size_t>(piece.first + piece.count, record.first + record.count);
        if (piece.parameter != record.parameter || begin >= end) continue;
        std::vector<std::byte>* targets[] = {&into.values, &into.state[0], &into.state[1]};
        const std::size_t size = to.number_bytes, at = piece.at + begin - piece.first;
        for (std::size_t k = 0; k <= record.states; ++k)
            std::memcpy(targets[k]->data() + at * size, numbers + (k * record.count + begin - record.first) * size,
                        (end - begin) * size);
        into.found.push_back({at, at + end - begin});
    }
}

}  // namespace

std::string text_of(const Manifest& m) {
    std::string out(title);
    out += text("number %016" PRIx64 "\nranks %d\nstep %lld\nstates %d\n", m.number, m.ranks, m.step, m.states);
    if (m.scale.scale > 0)
        out += text("scale %016" PRIx64 " %d\n", std::bit_cast<std::uint64_t>(m.scale.scale), m.scale.good);
    for (const std::string& p : m.parameters) out += "parameter " + p + "\n";
    for (std::size_t p = 0; p < m.updates.size(); ++p)  // of those that were not used in every step
        if (m.updates[p] != m.step) out += text("updates %zu %lld\n", p, m.updates[p]);
    for (const Manifest::Part& p : m.parts) out += text("part %" PRIu64 " %016" PRIx64 "\n", p.bytes, p.hash);
    return out + text("end %016" PRIx64 "\n", hash(out));
}

Manifest manifest_from(std::string_view all, const std::string& path) {
    if (!all.starts_with(title)) fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is no checkpoint", path.c_str());
    const std::size_t end = std::min(all.rfind("end "), all.size());
    if (all.substr(end) != text("end %016" PRIx64 "\n", hash(all.data(), end)))
        fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is torn or was changed", path.c_str());
    Lines lines(all.substr(title.size(), end - title.size()), path);
    Manifest m;
    m.number = lines.number<std::uint64_t>("number", 0, UINT64_MAX, 16);
    m.ranks = lines.number("ranks", 1, most_saving_ranks);
    m.step = lines.number("step", 0LL, most_steps);
    m.states = lines.number("states", 0, most_states);
    if (const auto scale = lines.words("scale")) {
        const auto [bits, good] = halves(*scale);
        m.scale = {std::bit_cast<double>(lines.parsed<std::uint64_t>(bits, 1, UINT64_MAX, 16)),
                   lines.parsed(good, 0, INT_MAX)};
        if (!(m.scale.scale > 0 && std::isfinite(m.scale.scale))) lines.wrong("the scale is not a positive number");
    }
    while (const auto parameter = lines.words("parameter")) m.parameters.emplace_back(*parameter);
    m.updates.assign(m.parameters.size(), m.step);
    while (const auto updates = lines.words("updates")) {
        const auto [number, count] = halves(*updates);
        const auto p = lines.parsed<std::size_t>(number, 0, SIZE_MAX);
        if (p >= m.parameters.size()) lines.wrong("there is no parameter of that number");
        m.updates[p] = lines.parsed(count, 0LL, most_steps);
    }
    while (const auto part = lines.words("part")) {
        const auto [bytes, its_hash] = halves(*part);
        m.parts.push_back({lines.parsed<std::uint64_t>(bytes, 0, UINT64_MAX),
                           lines.parsed<std::uint64_t>(its_hash, 0, UINT64_MAX, 16)});
    }
    if (!lines.at_end()) lines.wrong("what follows it is neither a parameter, nor updates, nor a part, in this order");
    if (m.parts.size() != static_cast<std::size_t>(m.ranks))
        fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' names %zu parts for %d ranks", path.c_str(), m.parts.size(),
             m.ranks);
    return m;
}

std::size_t Restored::covered() const {
    std::vector<std::pair<std::size_t, std::size_t>> ranges(found);
    std::ranges::sort(ranges);
    std::size_t elements = 0, until = 0;
    for (const auto& [begin, end] : ranges) {
        if (end <= until) continue;
        elements += end - std::max(begin, until);
        until = end;
    }
    return elements;
}

void read_part(std::string_view content, const std::string& name, int states, std::span<const Destination> to) {
    const auto all = static_cast<std::uint64_t>(states) + 1;
    while (!content.empty()) {
        Record record;
        if (content.size() < sizeof record)
            fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' ends within a record", name.c_str());
        std::memcpy(&record, content.data(), sizeof record);
        content.remove_prefix(sizeof record);
        if (record.parameter >= to.size() || record.states != static_cast<std::uint32_t>(states) ||
            record.number_bytes != to[record.parameter].number_bytes)
            fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' was saved with other types", name.c_str());
        const std::uint64_t room = content.size() / (all * record.number_bytes);
        if (record.count > room || record.first > UINT64_MAX - record.count)
            fail(tuttiInvalidUsage,
                 "tuttiDpLoad: '%s' has a record of %" PRIu64 " elements from %" PRIu64 " on, and numbers for %" PRIu64,
                 name.c_str(), record.count, record.first, room);
        copy_record(record, content.data(), to[record.parameter]);
        content.remove_prefix(record.count * record.number_bytes * all);
    }
}

}  // namespace tutti::dp
