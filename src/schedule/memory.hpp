// Numbers the places of a rank's chunks: input, then output, then scratch. In place the user passes one buffer for
// both, so chunks of input and output can be the same place (tutti.h says which for each collective).
#pragma once

#include <cstddef>

#include "schedule/program.hpp"

namespace tutti {

class Memory {
  public:
    Memory(const Program& p, bool in_place)
        : inputs_(p.input_rows * p.columns),
          outputs_(p.output_rows * p.columns),
          scratch_(p.scratch_chunks),
          in_place_(in_place && inputs_ > 0 && outputs_ > 0 && can_be_in_place(p.collective)),
          smaller_starts_at_(starts_at(p)) {}

    std::size_t size() const { return static_cast<std::size_t>(inputs_) + outputs_ + scratch_; }
    int outputs() const { return outputs_; }
    int inputs() const { return inputs_; }

    /// The place of a slice.
    std::size_t operator[](Operand o) const {
        const std::size_t index = o.index;
        if (o.place == Place::scratch) return inputs_ + outputs_ + index;
        if (o.place == Place::input)
            return in_place_ && inputs_ < outputs_ ? inputs_ + smaller_starts_at_ + index : index;
        return in_place_ && inputs_ >= outputs_ ? smaller_starts_at_ + index : inputs_ + index;
    }

    /// Whether a step copies that place to itself, which changes nothing. (A sum may scale it.)
    bool is_source(const Program& p, const Step& step, Operand sink) const {
        const Operand from = p.operands[step.first];
        return !reduces(p.collective) && step.sources == 1 && from.place != Place::peer &&
               (*this)[sink] == (*this)[from];
    }

  private:
    static bool can_be_in_place(Collective c) { return c != Collective::all_to_all && c != Collective::barrier; }

    // In place the smaller buffer is row number `rank` of the larger one.
    static std::size_t starts_at(const Program& p) {
        return p.input_rows != p.output_rows ? static_cast<std::size_t>(p.rank) * p.columns : 0;
    }

    int inputs_, outputs_, scratch_;
    bool in_place_;
    std::size_t smaller_starts_at_;
};

}  // namespace tutti
