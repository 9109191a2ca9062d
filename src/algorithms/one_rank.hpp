// What every algorithm is when there is one rank: its input is the result. Shared by the files of this folder only.
#pragma once

#include "schedule/program.hpp"

namespace tutti {

/// {input[0]} -> {output[0]}. It completes a reduction, so that avg and pre-multiplied sums scale here too.
inline Program one_rank(const Request& request) {
    Program p = program_for(request);
    p.step({input(0)}, {output(0)}, reduces(request.collective));
    return p;
}

}  // namespace tutti
