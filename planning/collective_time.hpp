// CollectiveTime: how long a collective takes on a machine that is not here.
//
// Up to 64 ranks the schedules of all ranks are walked (collectives/selection/cost_model.hpp).
// Beyond, a closed form is computed. Where both apply they agree (tests/planning/).
//
// All messages cost what they cost on the innermost network that holds all ranks. Each rank has a
// card of its own in each direction, and the network has no contention. A ring or a chain over
// several servers has a channel for each rank of a server, so all their cards carry it
// (Machine::level_of_ring). Other algorithms exchange with one partner at a time, over one card.
//
// A chain of a broadcast passes on small slices, so its hops overlap, as those of NCCL's broadcast
// do. The time of the first slice is taken to be that of its hops.
//
// Over several servers there is also the "double_tree": two binary trees, each for half of the
// buffer, in which every server is inside of one and a leaf of the other. It sends what a ring
// sends, and takes 2 log2 of the servers instead of 2 (n-1) hops. Slices are taken to be small: the
// time in which the first one goes up and down is that of its hops.
//
// "hierarchical" exchanges inside the servers first, then between ranks of one place in their
// servers. An all-reduce then ends inside the servers.
//
// Where the switches of that network add up, an all-reduce can also be "in_network": every rank
// sends its buffer to the switch once, and receives the sum once. For n ranks a ring sends 2
// (n-1)/n of the buffer, so the bus bandwidth of nccl-tests exceeds the rate of the link.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/selection/bus_bandwidth.hpp"
#include "collectives/selection/cost_model.hpp"
#include "planning/machine.hpp"
#include "planning/quantity.hpp"

namespace ringside::planning {

// alpha and beta of a level. Additions are free: a device adds what has arrived while more arrives.
collectives::CostParameters costs_on(const Level& level);

// The collectives of which some algorithms have a closed form, and these algorithms.
std::vector<std::string> simulated_collectives();
std::vector<std::string> closed_form_names(collectives::Collective collective);

// These, with double_tree and in_network of an all_reduce and hierarchical of an all_to_all, where
// the machine has them. A hierarchical all_reduce has to be named: the tree is faster.
std::vector<std::string> algorithms_on(collectives::Collective collective, std::int64_t ranks,
                                       const Machine& machine);

// Seconds of a collective of a whole buffer of `bytes` bytes on n ranks, in closed form. The costs
// must have no slices and no shared cores, and overhead = alpha. Throws Error for an algorithm
// without a form.
Term closed_form(collectives::Collective collective, std::string_view algorithm, std::int64_t ranks,
                 double bytes, const collectives::CostParameters& costs);

// Seconds of an all_reduce, all_gather, reduce_scatter or all_to_all of a buffer of `bytes` (whole,
// on all ranks together) on `ranks` ranks of level `index`, `stride` apart: the ring, or for an
// all-reduce double_tree or in_network where that is faster; pairwise for an all_to_all.
double collective_seconds(collectives::Collective collective, std::size_t index, std::int64_t ranks,
                          std::int64_t stride, double bytes, const Machine& machine);

struct CollectiveTime {
  collectives::Collective collective = collectives::Collective::all_reduce;
  std::string algorithm;
  std::int64_t ranks = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;
  bool walked = false;  // or computed in closed form
  // Bytes of the buffer per second; and of each link of a ring (collectives/selection/
  // bus_bandwidth.hpp).
  double algbw() const { return static_cast<double>(bytes) / seconds; }
  double busbw() const {
    const collectives::Call call{.collective = collective,
                                 .type = collectives::DataType::uint8,
                                 .count = bytes,
                                 .label = {}};
    return collectives::bus_bandwidth(call, static_cast<int>(ranks), seconds);
  }
};

inline constexpr std::int64_t most_ranks_walked = 64;

// `algorithm` is one of the catalogue's, a file's, or of an all-reduce "in_network". `bytes` is the
// whole buffer: in an all_gather and a reduce_scatter that of all ranks together. Throws Error if
// there is no such algorithm, no closed form for so many ranks, the machine has fewer devices, or
// its switches do not add up. Between servers the "double_tree" of an all-reduce has a closed form,
// and so has "hierarchical" of an all_reduce and an all_to_all.
CollectiveTime collective_time(collectives::Collective collective, std::string_view algorithm,
                               std::int64_t ranks, std::uint64_t bytes, const Machine& machine);

}  // namespace ringside::planning
