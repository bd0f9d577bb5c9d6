// What messages cost behind an emulated link: the input of algorithm selection there.
#pragma once

#include <optional>
#include <string_view>

#include "collectives/selection/algorithm_selection.hpp"
#include "collectives/selection/cost_model.hpp"
#include "collectives/transport/link.hpp"

namespace ringside::collectives {

// `costs` of a machine, plus the latency of the link for each message and its rate for each byte.
MachineCosts costs_behind(const Link& link, MachineCosts costs);

// With a link, `algorithms` select by what messages of `transport` cost behind it, unless they have
// costs already. `hosts` machines share the ranks.
AlgorithmSelection selection_behind(AlgorithmSelection algorithms, const std::optional<Link>& link,
                                    std::string_view transport, int hosts = 1);

}  // namespace ringside::collectives
