// What messages cost behind an emulated link: the input of algorithm selection there.
#pragma once

#include "collectives/selection/cost_model.hpp"
#include "collectives/transport/link.hpp"

namespace ringside::collectives {

// `costs` of a machine, plus the latency of the link for each message and its rate for each byte.
MachineCosts costs_behind(const Link& link, MachineCosts costs);

}  // namespace ringside::collectives
