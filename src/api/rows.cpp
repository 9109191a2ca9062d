// The arguments of uneven collectives.
#include <algorithm>
#include <cstdint>

#include "api/checks.hpp"

namespace tutti {
namespace {

using Form = RowArguments::Form;

/// One of a call's two buffers on this rank. It has no rows if the rank does not use it.
struct RowBuffer {
    const char* name;
    const void* buffer;
    const RowArguments& arguments;
    std::vector<Row> rows;

    std::size_t own(Rank rank) const { return rows.size() > 1 ? static_cast<std::size_t>(rank) : 0; }
    std::string row_text(std::size_t row) const {
        if (arguments.displs == nullptr) return name;
        return text("%s[%zu] = %zu, %s[%zu] = %zu", arguments.counts_name, row, rows[row].count, arguments.displs_name,
                    row, rows[row].at);
    }
};

/// Whether this rank uses the buffer: only the root of a gather receives, and only the root of a scatter sends.
bool used(const Arguments& a, bool output, Rank rank) {
    return !((a.collective == Collective::gather && output) || (a.collective == Collective::scatter && !output)) ||
           rank == a.root;
}

std::size_t limited(const Arguments& a, const char* name, const std::size_t* values, int index, bool array,
                    std::size_t limit) {
    const std::size_t value = values[index];
    if (value > limit)
        fail(tuttiInvalidArgument, "%s: %s%s is %zu, which is too large (negative, perhaps?)", a.function, name,
             array ? text("[%d]", index).c_str() : "", value);
    return value;
}

std::vector<Row> rows_of(const Arguments& a, const RowArguments& given, int ranks) {
    const std::size_t limit = largest_row(static_cast<DataType>(a.type), ranks);
    const bool array = given.form != Form::one;
    if (given.counts == nullptr) fail(tuttiInvalidArgument, "%s: %s is NULL", a.function, given.counts_name);
    if (given.form == Form::placed && given.displs == nullptr)
        fail(tuttiInvalidArgument, "%s: %s is NULL", a.function, given.displs_name);
    std::vector<Row> rows;
    std::size_t at = 0;
    for (int r = 0; r < (array ? ranks : 1); ++r) {
        const std::size_t count = limited(a, given.counts_name, given.counts, r, array, limit);
        if (given.form == Form::placed) at = limited(a, given.displs_name, given.displs, r, true, limit);
        rows.push_back({at, count});
        at += count;
    }
    return rows;
}

struct Range {
    std::uintptr_t begin, end;  // addresses
    std::size_t row;
};

/// The ranges of the rows that are not empty, sorted by address.
std::vector<Range> ranges_of(const RowBuffer& side, std::size_t element) {
    std::vector<Range> ranges;
    const auto base = reinterpret_cast<std::uintptr_t>(side.buffer);
    for (std::size_t r = 0; r < side.rows.size(); ++r) {
        const Row& row = side.rows[r];
        if (row.count != 0) ranges.push_back({base + row.at * element, base + (row.at + row.count) * element, r});
    }
    std::ranges::sort(ranges, {}, &Range::begin);
    return ranges;
}

/// Throws if rows of recvbuff overlap each other or a row of sendbuff, unless this rank's own rows are in place.
void check_overlaps(const Arguments& a, const RowBuffer& in, const RowBuffer& out, std::size_t element, Rank rank) {
    const std::vector<Range> written = ranges_of(out, element);
    for (std::size_t i = 1; i < written.size(); ++i)
        if (written[i].begin < written[i - 1].end)
            fail(tuttiInvalidArgument, "%s: rows %zu and %zu of recvbuff overlap: %s; %s", a.function,
                 written[i - 1].row, written[i].row, out.row_text(written[i - 1].row).c_str(),
                 out.row_text(written[i].row).c_str());
    for (const Range& read : ranges_of(in, element)) {
        const auto hit = std::ranges::upper_bound(written, read.begin, {}, &Range::end);
        if (hit == written.end() || hit->begin >= read.end) continue;
        const bool in_place = a.collective != Collective::all_to_all && read.row == in.own(rank) &&
                              hit->row == out.own(rank) && read.begin == hit->begin && read.end == hit->end;
        if (!in_place)
            fail(tuttiInvalidArgument, "%s: sendbuff and recvbuff overlap without being in place: %s; %s", a.function,
                 in.row_text(read.row).c_str(), out.row_text(hit->row).c_str());
    }
}

/// Throws if the row that this rank has for itself differs in length between the two buffers.
void check_own(const Arguments& a, const RowBuffer& in, const RowBuffer& out, Rank rank) {
    if (in.rows.empty() || out.rows.empty()) return;
    const std::size_t sent = in.rows[in.own(rank)].count, received = out.rows[out.own(rank)].count;
    const auto name = [&](const RowBuffer& s) {
        return s.arguments.form == Form::one ? s.arguments.counts_name : text("%s[%d]", s.arguments.counts_name, rank);
    };
    if (sent != received)
        fail(tuttiInvalidArgument, "%s: %s is %zu, but %s is %zu: both are what rank %d has for itself", a.function,
             name(in).c_str(), sent, name(out).c_str(), received, rank);
}

std::uint64_t hash_of(const std::vector<Row>& rows) {
    std::uint64_t hash = 0x756e6576656e;
    for (const Row& row : rows) hash = (hash ^ row.count) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
    return hash;
}

}  // namespace

std::shared_ptr<const Rows> check_rows(const Arguments& a, Rank rank, int ranks) {
    const std::size_t element = size_of(static_cast<DataType>(a.type));
    RowBuffer in{"sendbuff", a.input, a.uneven->input, {}}, out{"recvbuff", a.output, a.uneven->output, {}};
    if (used(a, false, rank)) in.rows = rows_of(a, in.arguments, ranks);
    if (out.arguments.form == Form::own)
        out.rows = {{0, in.rows[in.own(rank)].count}};
    else if (used(a, true, rank))
        out.rows = rows_of(a, out.arguments, ranks);
    check_own(a, in, out, rank);
    auto result = std::make_shared<Rows>();
    for (const RowBuffer* side : {&in, &out}) {
        std::size_t longest = 0;
        for (const Row& row : side->rows) longest = std::max(longest, row.count);
        if (longest != 0) check_pointer(a, side->name, side->buffer, element);
        result->longest = std::max(result->longest, longest);
    }
    check_overlaps(a, in, out, element, rank);
    const std::vector<Row> known = !counts_known_to_all(a.collective)       ? std::vector<Row>{}
                                   : a.collective == Collective::all_gather ? out.rows
                                                                            : in.rows;
    for (const Row& row : known) result->known += row.count;
    result->hash = hash_of(known);
    result->input = std::move(in.rows);
    result->output = std::move(out.rows);
    return result;
}

}  // namespace tutti
