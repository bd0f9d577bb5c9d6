// FluidNetwork: the links between the devices of a machine, and the flows that share them now.
//
// Each device has a port of its own in each direction, for each level. A group of devices has one
// uplink and one downlink to the next level, which its devices share: as fast as all their ports
// together, divided by the level's oversubscription. Flows along a rail do not pass it.
//
//     device ── port ──┐                            ┌── port ── device
//     device ── port ──┤ group ── up ──▶ ── down ── ┤ group
//                      └                            └
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "planning/machine.hpp"
#include "planning/simulation/congestion/fair_share.hpp"
#include "planning/simulation/network.hpp"

namespace ringside::planning {

class FluidNetwork {
 public:
  // Keeps a reference to the machine.
  explicit FluidNetwork(const Machine& machine) : machine_(machine), levels_(machine) {}

  // Adds the links from one rank to another, for a `share` of the flow. `times`: so many neighbours
  // of both do the same, each over its own ports.
  void add_path(FlowPath& path, std::int64_t from, std::int64_t to, double times, double share = 1);
  // The same for a hop of a ring through `group`, from its `place`-th rank on: what leaves a server
  // is divided among the channels (Machine::level_of_ring).
  void add_hop(FlowPath& path, const RankGroup& group, std::int64_t place, double times);
  double latency(std::int64_t from, std::int64_t to) const;
  // Bytes per second if all devices send at the same time: what longest_path() reckons with.
  double undisturbed_rate(const RankGroup& group) const {
    return levels_.level_of_ring(group).rate();
  }

  // A flow of `bytes` begins now. `path` must live until the flow has ended.
  void start(std::size_t id, const FlowPath& path, double bytes);
  bool idle() const { return flows_.empty(); }
  // When the next flow ends, if none begins before.
  double next_end();
  // Time goes on to `time`, at most next_end(). Returns the ids of the flows that have ended.
  std::vector<std::size_t> advance(double time);

 private:
  enum class Kind { out, in, up, down };
  struct Flow {
    std::size_t id = 0;
    const FlowPath* path = nullptr;
    double bytes = 0, rate = 0;
  };

  std::size_t level_between(std::int64_t from, std::int64_t to) const;
  std::size_t link(Kind kind, std::size_t level, std::int64_t owner, double capacity);
  void share();

  const Machine& machine_;
  const Network levels_;
  std::map<std::tuple<Kind, std::size_t, std::int64_t>, std::size_t> known_;
  std::vector<double> capacity_;
  std::vector<Flow> flows_;
  double now_ = 0;
  bool changed_ = false;  // flows have begun or ended since the last share()
};

}  // namespace ringside::planning
