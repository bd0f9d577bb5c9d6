// Network: how long a message or a collective takes between given ranks of a machine, if nobody
// else uses the network.
//
// A group of ranks communicates over the innermost level that joins all of them; its slowest link
// is part of every step of a ring. So the time depends only on the SHAPE of a group: how many ranks
// on which level, and whether they are on one rail. Thousands of groups of a mesh have few shapes,
// and each is computed once.
#pragma once

#include <cstddef>
#include <map>
#include <tuple>

#include "collectives/algorithms/collective.hpp"
#include "planning/machine.hpp"
#include "planning/simulation/mesh_ranks.hpp"

namespace ringside::planning {

class Network {
 public:
  // Keeps a reference to the machine.
  explicit Network(const Machine& machine) : machine_(machine) {}

  // The index of the innermost level one of whose groups holds all these ranks. Throws Error if the
  // machine has fewer devices.
  std::size_t level_of(const RankGroup& group) const;
  // That level as the group sees it, with the bandwidth along its rails.
  Level level_along(const RankGroup& group) const {
    return machine_.level_along(level_of(group), group.stride);
  }

  // What a ring of the group makes of the levels up to that one.
  Level level_of_ring(const RankGroup& group) const {
    return machine_.level_of_ring(level_of(group), group.count, group.stride);
  }

  // Seconds from the send until the message of `bytes` has arrived.
  double message_seconds(std::int64_t from, std::int64_t to, double bytes) const;

  // Seconds of an all_reduce, all_gather, reduce_scatter or all_to_all of a buffer of `bytes`
  // (whole, on all ranks together), as by planning::collective_seconds(). 0 for a group of one.
  double collective_seconds(collectives::Collective collective, const RankGroup& group,
                            double bytes);

  // How many collectives were computed: one for each shape and size.
  std::size_t computed() const { return known_.size(); }

 private:
  const Machine& machine_;
  // By the collective, ranks, level, seconds of a byte and of a hop there, and bytes.
  std::map<std::tuple<collectives::Collective, std::int64_t, std::size_t, double, double, double>,
           double>
      known_;
};

}  // namespace ringside::planning
