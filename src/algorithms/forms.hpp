// What the rows of the table support, and their costs in closed form. Shared by the files of this folder only.
#pragma once

#include <initializer_list>

#include "algorithms/algorithms.hpp"

namespace tutti {

/// Which collectives a row of the table can do, for instance supports<Collective::send, Collective::recv>.
template <Collective... able>
bool supports(Collective c) {
    return ((c == able) || ...);
}

ClosedForm ring_form(Collective c, int n);
ClosedForm direct_form(Collective c, int n);
ClosedForm flat_form(Collective c, int n);
ClosedForm pair_form(Collective c, int n);
ClosedForm binomial_form(Collective c, int n);
ClosedForm tree_form(Collective c, int n);
ClosedForm double_tree_form(Collective c, int n);
ClosedForm halving_doubling_form(Collective c, int n);
ClosedForm doubling_form(Collective c, int n);
ClosedForm bruck_form(Collective c, int n);
ClosedForm pat_form(Collective c, int n);
ClosedForm dissemination_form(Collective c, int n);
ClosedForm server_form(Collective c, int n);
ClosedForm server2_form(Collective c, int n);
ClosedForm hierarchy_form(Collective c, int n);

}  // namespace tutti
