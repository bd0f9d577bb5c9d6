// A lane of the race: one backend, or one of the machine's limits, as this process measures it.
//
// A SAMPLE is the mean of a batch of calls, one after the other without a pause, as a training step
// makes them; calls shorter than two milliseconds share a batch, so that the clock and the
// scheduler's whims weigh little. A BLOCK is a few samples in a row, with fresh buffers, some calls
// to warm up before, and the check of the result after. Lanes take turns block by block
// (bench_run.cpp).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/bench/plan.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/call.hpp"

namespace ringside::cli {

struct Block {
  collectives::Call call;
  int warmup = 0;  // calls
  int samples = 0;
  int batch = 1;  // calls in a sample
};

// What one rank has measured, over all its blocks.
struct RankRecord {
  std::vector<double> seconds;  // of a call, one for each sample
  std::uint64_t wrong = 0;      // elements, of the worst block
};

struct Lane {
  std::string name;
  std::string algorithm;                  // of a backend of ours: of the catalogue, or auto
  const BenchBackend* backend = nullptr;  // none: a limit
  Limit limit = Limit::tcp;               // what it is, or is compared with
  int set = 0;                            // whose ranks measure (bench_seat.hpp)
  bool takes_part = false;                // does this process?
  std::function<void(const Block&, std::vector<RankRecord>&)>
      measure;  // a record for each rank that this process is

  bool ours() const { return !algorithm.empty(); }
};

// Empty-handed lanes, the same in every process: for each backend of the plan, of ours for each
// algorithm, and for each limit that they are compared with. Lanes of one backend stand side by
// side.
std::vector<Lane> lanes_of(const BenchPlan& plan, int ranks);

// Connects the lane's ranks, of which this process is one. `meeting` says where they may meet.
void open_lane(Lane& lane, const collectives::RankInfo& meeting);

}  // namespace ringside::cli
