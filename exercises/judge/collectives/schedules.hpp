// What the judges of schedules share: schedules for every number of ranks, and drawings of them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/algorithm_files/schedule_json.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/call.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::collectives {
class Executor;
class Watchdog;
}  // namespace ringside::collectives

namespace ringside::exercises {

using Schedules = std::vector<collectives::Schedule>;  // [rank]

// The schedules of all ranks, for 1 to `largest` ranks: [size - 1][rank].
Json schedules_up_to(int largest,
                     const std::function<collectives::Schedule(int size, int rank)>& make);

Schedules schedules_of(const Json& data, int size);

// The table of steps up to the step in which the schedules go wrong, or to the end.
std::string drawing_of(collectives::Collective collective, const Schedules& schedules);

// The first step in which a rank does something else than `expected`:
// "rank 1, step 0: sends chunk 0 to rank 0, expected chunk 0 to rank 2". "" if there is none.
std::string first_difference(const Schedules& seen, const Schedules& expected);

// Bytes and messages of rank `rank` to each other rank, in parts of the buffer.
struct SentTo {
  int messages = 0;
  double buffers = 0;
};
std::vector<SentTo> sent_by(const collectives::Schedule& schedule, int size);

// ": all goes through rank 0" if every rank exchanges messages with that rank and no other; else
// "".
std::string hub_of(const Schedules& schedules);

// What is wrong with the bytes of each rank, where all of them go to `peer(rank)`:
// "rank 1: sends 1.00 n to rank 0, expected 0.75 n to rank 2: all goes through rank 0".
std::string fault_of_budget(const Schedules& schedules, double buffers, int messages,
                            const std::function<int(int rank)>& peer);

// Runs a student's schedule over the transport of the world.
class ScheduleRunner {
 public:
  ScheduleRunner(World& world, const collectives::Schedule& schedule);
  ~ScheduleRunner();
  // `input` holds the chunks `given`, `output` the chunks `kept`; they may be the same memory.
  void run(const collectives::Call& call, std::span<const float> input,
           collectives::ChunkRange given, std::span<float> output, collectives::ChunkRange kept);

 private:
  const collectives::Schedule& schedule_;
  collectives::Connections connections_;
  std::unique_ptr<collectives::Watchdog> watchdog_;
  std::unique_ptr<collectives::Executor> executor_;
  std::uint64_t calls_ = 0;
};

}  // namespace ringside::exercises
