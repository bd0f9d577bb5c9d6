// A contender: one backend, or one of the machine's limits, as this process measures it.
//
// A SAMPLE is the mean time of a batch of calls without a pause in between, as in a training step.
// Calls shorter than two milliseconds share a batch, which reduces the influence of the clock and
// the scheduler. A BLOCK is a few consecutive samples with fresh buffers: first some calls to warm
// up, then the samples, then a check of the result. Contenders take turns block by block (run.cpp).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench_options.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/call.hpp"
#include "collectives/cuda/device.hpp"

namespace ringside::cli {

struct Block {
  collectives::Call call;
  int warmup = 0;  // calls
  int samples = 0;
  int batch = 1;        // calls in a sample
  bool queued = false;  // they queue up on the device, whose events give the time
  bool in_place = false;
  // Of queued calls; those of a limit, whose ranks share a stream, queue up alone.
  collectives::cuda::Queueing queueing = {};
};

// The measurements of one rank over all its blocks.
struct RankRecord {
  std::vector<double> seconds;  // of one call; one entry for each sample
  std::uint64_t wrong = 0;      // wrong elements in the worst block
  std::string choice;           // of a library, for the last block (DeviceBackend::choice_of)
};

struct Contender {
  std::string name;
  std::string algorithm;                  // of our own backends: a name of the catalogue, or auto
  const BenchBackend* backend = nullptr;  // none: a limit
  Limit limit = Limit::tcp;               // the limit that it is, or is compared with
  int set = 0;                            // the set whose ranks measure (process_layout.hpp)
  bool announces = true;                  // ours, where the transport can
  // Measures a block, with one record for each rank that this process runs.
  std::function<void(const Block&, std::vector<RankRecord>&)> measure;

  bool ours() const { return !algorithm.empty(); }
};

// The contenders of these options, not yet connected; the same in every process. One for each
// backend (of our own backends, one for each algorithm) and one for each limit that they are
// compared with. Contenders of one backend follow each other.
std::vector<Contender> contenders_of(const BenchOptions& options, int ranks);

// Connects the ranks of a contender; this process is one of them. They meet at `meeting`.
void open_contender(Contender& contender, const collectives::RankInfo& meeting);

}  // namespace ringside::cli
