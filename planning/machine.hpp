// Machine: a device, and the network between many of them, as a JSON file describes both.
//
//     {
//       "source": "where the figures come from",
//       "estimates": "which of them nobody has published or measured",
//       "device": {"peak_tflops": 312, "memory_gb": 80, "memory_gbps": 2039,
//                  "matmul_efficiency": 0.72, "memory_efficiency": 0.75, "overlap": 1},
//       "levels": [{"name": "NVLink", "group": 8, "gbps": 300, "us": 5, "efficiency": 0.77,
//                   "in_network_efficiency": 0.6},
//                  {"name": "InfiniBand", "group": 4096, "gbps": 25, "us": 10,
//                   "oversubscription": 2}]
//     }
//
// Levels go from the inside out. A level joins groups of `group` devices, counted in devices, not
// in groups of the level below. gbps is 10^9 bytes per second of one device, in one direction; us
// is the latency of one message. Efficiencies are the share of the figure that is reached, at most
// 1. What may be left out, and what it is then:
//
//     overlap                 share of communication that can run while the device computes; 1. On
//                             a CPU the computing cores also move the bytes: 0
//     in_network_efficiency   the switches of this level add up: a rank sends its buffer once, and
//                             receives the sum once, at this share of gbps; 0: they do not
//     oversubscription        a group of the level below has so many times less bandwidth to the
//                             outside than its devices together; 1
//     kernel_us               microseconds that each kernel takes beside its work: its launch, and
//                             the first and the last wave of its blocks; 0
//     rails                   true: devices with the same place in their groups of the level below
//                             share switches, a rail. Ranks of one rail reach each other at full
//                             rate; what goes from rail to rail is oversubscribed; false
//     matmul_efficiency_by_width
//                             instead of matmul_efficiency: [{"width": 512, "efficiency": 0.4},
//                             {"width": 4096, "efficiency": 0.7}]. The width is the shortest side
//                             of the matrices on one device. Between two rows the efficiency is
//                             linear in log(width); outside of them it is that of the nearest
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringside::planning {

struct Level {
  std::string name;
  std::int64_t group = 1;       // devices
  double bytes_per_second = 0;  // of one device, in one direction
  double latency = 0;           // seconds
  double efficiency = 1;
  double in_network_efficiency = 0;  // of an all-reduce that the switches compute; 0: they do not
  double oversubscription = 1;
  bool rails = false;

  // Bytes per second of one device while all devices send at the same time.
  double rate() const { return bytes_per_second * efficiency / oversubscription; }
};

struct EfficiencyAt {
  double width = 0, efficiency = 1;
};

struct Machine {
  std::string name, source, estimates;
  double peak = 0;              // FLOP/s of one device, for matrix products in 16 bits
  double memory = 0;            // bytes of one device
  double memory_bandwidth = 0;  // bytes per second
  double matmul_efficiency = 1, memory_efficiency = 1;
  std::vector<EfficiencyAt> matmul_efficiency_by_width;  // by rising width; may be empty
  double kernel_seconds = 0;                             // of each kernel, beside its work
  double overlap = 1;  // the share of communication that can run while a device computes
  std::vector<Level> levels;

  // The innermost level whose groups hold `devices` neighbouring devices. Throws Error if there are
  // not that many.
  const Level& level_for(std::int64_t devices) const;
  std::size_t level_index_for(std::int64_t devices) const;

  // Level `index` as ranks `stride` apart see it: on one rail nothing is oversubscribed.
  Level level_along(std::size_t index, std::int64_t stride) const;

  // The ranks of a group, `stride` apart, that stand on one server (level 0). Each has a card of
  // its own to the levels above.
  std::int64_t ranks_on_server(std::int64_t count, std::int64_t stride) const;

  // What a ring of `count` ranks, `stride` apart, makes of the levels up to `index`. It is divided
  // into one channel for each rank of a server: a ring that leaves the server by the card of that
  // rank, and comes in by the same rail (NCCL's channels). So servers exchange at the rate of all
  // these cards, at most at that of the levels inside. The latency is the mean of the ring's hops,
  // because each chunk takes them all. A ring leaves an oversubscribed group with each channel
  // once, however many of its ranks are there.
  Level level_of_ring(std::size_t index, std::int64_t count, std::int64_t stride) const;

  // Seconds of the hops up and down a double binary tree over the servers of the same group, with a
  // chain inside of each. 0 if the group is on one server.
  double tree_latency(std::size_t index, std::int64_t count, std::int64_t stride) const;

  // The share of the peak that products of matrices reach whose shortest side is `width`.
  double matmul_efficiency_at(double width) const;
};

// `name` is one of machine_names(), or the path of a JSON file. Throws Error that lists the names,
// or says which field of the file is wrong.
Machine find_machine(const std::string& name);

// The machines of data/machines/.
std::vector<std::string> machine_names();

}  // namespace ringside::planning
