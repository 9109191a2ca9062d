#include "plan/pieces.hpp"

#include <optional>

namespace tutti {
namespace {

/// One buffer of an uneven call.
struct UnevenBuffer {
    const std::vector<Row>& rows;
    bool per_peer;  // a row for each peer; else one row, to or from the peer that takes part
    /// The row that this rank exchanges with `peer`; nullopt if it has no elements.
    std::optional<Row> with(Rank peer) const {
        if (rows.empty()) return std::nullopt;
        const Row row = rows[per_peer ? static_cast<std::size_t>(peer) : 0];
        return row.count > 0 ? std::optional(row) : std::nullopt;
    }
};

Operation as_bytes(Operation o) {
    if (reduces(o.collective)) return o;
    o.count *= size_of(o.type);
    o.type = DataType::uint8;
    return o;
}

}  // namespace

std::vector<Operation> pieces_of(const Operation& uneven, Rank self, int ranks) {
    if (uneven.rows == nullptr) return {as_bytes(uneven)};
    const std::size_t element = size_of(uneven.type);
    const auto* input = static_cast<const std::byte*>(uneven.input);
    auto* output = static_cast<std::byte*>(uneven.output);
    std::vector<Operation> pieces;
    const auto piece = [&](Collective collective, Rank root, const Row& from, const Row* to) {
        Operation o = uneven;
        o.collective = collective;
        o.rows = nullptr;
        o.root = root;
        o.count = from.count;
        o.input = input == nullptr || collective == Collective::recv ? nullptr : input + from.at * element;
        o.output = to == nullptr ? nullptr : output + to->at * element;
        pieces.push_back(as_bytes(o));
    };
    if (uneven.collective == Collective::reduce_scatter) {
        for (Rank r = 0; r < ranks; ++r) {
            const Row& row = uneven.rows->input[static_cast<std::size_t>(r)];
            if (row.count > 0) piece(Collective::reduce, r, row, r == self ? &uneven.rows->output[0] : nullptr);
        }
        return pieces;
    }
    const bool rooted = has_root(uneven.collective), root = self == uneven.root;
    const UnevenBuffer sent{uneven.rows->input, uneven.rows->input.size() > 1};
    const UnevenBuffer received{uneven.rows->output, uneven.rows->output.size() > 1};
    for (Rank peer = 0; peer < ranks; ++peer) {
        // With a root, data moves only to or from it, as the collective says.
        const bool gives = !rooted || (uneven.collective == Collective::gather ? peer == uneven.root : root);
        const bool takes = !rooted || (uneven.collective == Collective::gather ? root : peer == uneven.root);
        const std::optional<Row> out = gives ? sent.with(peer) : std::nullopt;
        const std::optional<Row> in = takes ? received.with(peer) : std::nullopt;
        if (peer == self && out && in) {  // a receive whose input is the row that is sent
            piece(Collective::recv, peer, *in, &*in);
            pieces.back().input = input + out->at * element;
        } else {
            if (out) piece(Collective::send, peer, *out, nullptr);
            if (in) piece(Collective::recv, peer, *in, &*in);
        }
    }
    return pieces;
}

}  // namespace tutti
