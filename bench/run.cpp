#include "bench/run.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/ports/listening_port.hpp"
#include "bench/contender.hpp"
#include "cli/pictures/median.hpp"
#include "collectives/algorithm_files/algorithm_file.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/group_options.hpp"
#include "collectives/process_group.hpp"
#include "collectives/selection/bus_bandwidth.hpp"
#include "collectives/selection/calibration.hpp"

namespace ringside::cli {
namespace {

using collectives::Call;
using collectives::Collective;
using collectives::MachineCosts;
using collectives::ProcessGroup;
using collectives::RankInfo;
using collectives::ReduceOp;

constexpr int rounds = 4;                // blocks of a contender
constexpr double sample_seconds = 2e-3;  // shorter calls share a batch
constexpr int fewest_samples = 7;
constexpr Seconds longest_turn{10};  // a process that does not measure waits this much longer

// The result of all ranks of a contender.
struct Figure {
  double seconds = 0;  // the slowest rank's quantile (BenchOptions::quantile)
  SampleSpread spread;
  std::int64_t wrong = 0;
  std::string choice;  // as this process heard it: rank 0 takes the rows
};

class Bench {
 public:
  Bench(const BenchOptions& options, const ProcessLayout& layout)
      : options_(options),
        layout_(layout),
        all_processes_(connect_all_processes(layout.in_job)),
        contenders_(contenders_of(options, layout.in_set.size)) {
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      if (i > 0 && contenders_[i].name == contenders_[i - 1].name)
        contenders_[i].measure = contenders_[i - 1].measure;  // over the same connections
      else
        open(contenders_[i]);
    }
  }

  std::vector<BenchRow> measure(std::uint64_t bytes, bool in_place) {
    std::vector<Call> calls;
    for (const Contender& contender : contenders_) calls.push_back(call_of(contender, bytes));
    std::vector<std::vector<RankRecord>> records(
        contenders_.size(), std::vector<RankRecord>(static_cast<std::size_t>(layout_.in_set.size)));
    std::vector<Block> blocks;
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      auto trial = records[i];
      run(contenders_[i],
          {.call = calls[i], .warmup = options_.warmup, .samples = 3, .in_place = in_place}, trial);
      blocks.push_back(block_for(calls[i], gather(trial).seconds));
      blocks.back().in_place = in_place;
    }
    for (int round = 0; round < rounds; ++round)
      for (std::size_t i = 0; i < contenders_.size(); ++i)
        run(contenders_[i], blocks[i], records[i]);
    std::vector<Figure> figures;
    for (const auto& record : records) figures.push_back(gather(record));
    auto measured = rows(calls, figures);
    for (BenchRow& row : measured) row.in_place = in_place;
    return measured;
  }

  // What rank 0 finds right, every rank does.
  bool decide_place(std::uint64_t bytes) {
    std::uint8_t in_place = measures_in_place(options_, layout_.in_set.local_size, bytes);
    all_processes_.broadcast(std::span(&in_place, 1), 0);
    return in_place != 0;
  }

  void finish() { all_processes_.finish(); }

 private:
  static ProcessGroup connect_all_processes(const RankInfo& rank_info) {
    auto options = collectives::group_options_from_environment();
    options.executor.timeout += longest_turn;
    options.link = {};
    return ProcessGroup::over("tcp", rank_info, options);
  }

  // The ranks of each contender meet at a free port where rank 0 of the job listens.
  void open(Contender& contender) {
    std::optional<ListeningPort> listening;
    if (all_processes_.rank() == 0) listening.emplace();
    std::int32_t port = listening ? listening->number() : 0;
    all_processes_.broadcast(std::span(&port, 1), 0);
    RankInfo meeting = layout_.in_set;
    // The socket hears this host only; where others meet rank 0 elsewhere, it listens there itself.
    if (meeting.master_address != "127.0.0.1") listening.reset();
    meeting.listening = listening ? listening->descriptor() : -1;
    meeting.master_port = static_cast<std::uint16_t>(port);
    if (contender.set == layout_.set) open_contender(contender, meeting);
    all_processes_.barrier();
  }

  Call call_of(const Contender& contender, std::uint64_t bytes) {
    Call call;
    call.collective = options_.collective;
    call.type = options_.type;
    call.reduce = options_.op;
    call.count = options_.collective == Collective::barrier ? 0 : bytes / size_of(options_.type);
    const bool equal_blocks = call.collective == Collective::gather ||
                              call.collective == Collective::scatter ||
                              call.collective == Collective::all_to_all;
    if (equal_blocks) call.count -= call.count % static_cast<std::uint64_t>(layout_.in_set.size);
    if (contender.ours()) call.algorithm = algorithm_of(contender, call);
    return call;
  }

  // The number of the contender's algorithm in the catalogue.
  std::uint8_t algorithm_of(const Contender& contender, const Call& call) {
    const auto number = [&](std::string_view name) {
      return number_of(collectives::algorithm_named(call.collective, std::string(name)));
    };
    if (contender.algorithm != "auto") return number(contender.algorithm);
    // Devices have no calibration: take the algorithm that moves the fewest bytes.
    if (contender.backend->device()) return number(algorithm_on_device(contender, call));
    // The algorithm that a ProcessGroup over this transport would select, decided by rank 0.
    std::uint8_t algorithm = 0;
    if (all_processes_.rank() == 0) {
      auto selection = collectives::group_options_from_environment().algorithms;
      selection.set_costs(costs_over(contender.name));
      algorithm =
          number_of(selection.choose(call.collective, call.count, call.type, layout_.in_set.size));
    }
    all_processes_.broadcast(std::span(&algorithm, 1), 0);
    return algorithm;
  }

  const MachineCosts& costs_over(const std::string& transport) {
    const auto [found, is_new] = costs_.try_emplace(transport);
    if (is_new) {
      found->second = collectives::costs_here(transport);
      if (link_) found->second = behind_link(found->second, *link_);
    }
    return found->second;
  }

  double predicted_seconds(const Contender& contender, const Call& call) {
    if (!contender.ours() || contender.backend->device() || layout_.in_job.rank != 0) return 0;
    return costs_over(contender.name)
        .seconds_of(*collectives::algorithm_numbered(call.algorithm), layout_.in_set.size,
                    call.count * size_of(call.type));
  }

  std::string_view algorithm_on_device(const Contender& contender, const Call& call) const {
    const bool has_a_gpu_each = collectives::cuda::device_count() >= layout_.in_set.size;
    if (call.collective == Collective::all_reduce)
      return contender.name == "cuda_ipc" && has_a_gpu_each
                 ? collectives::cuda::cuda_ipc_algorithm(call.count * size_of(call.type))
                 : "two_shot";
    const bool scatters =
        call.collective == Collective::reduce_scatter || call.collective == Collective::all_gather;
    return scatters ? "direct" : "";
  }

  Block block_for(const Call& call, double seconds) const {
    Block block{.call = call};
    block.batch = static_cast<int>(
        std::clamp(std::ceil(sample_seconds / std::max(seconds, 1e-8)), 1.0, 10000.0));
    if (options_.queued > 0) block.batch = options_.queued;
    block.queued = options_.queued > 0;
    block.queueing = options_.queueing;
    const double fit = options_.seconds / std::max(seconds * block.batch, 1e-6);
    const int samples = options_.repeat.value_or(std::max(fewest_samples, static_cast<int>(fit)));
    block.samples = (samples + rounds - 1) / rounds;
    block.warmup = seconds > sample_seconds ? std::min(options_.warmup, 2) : options_.warmup;
    return block;
  }

  // Some ranks leave a barrier while others are still in it. A process that was stopped while it
  // waited in the first barrier never comes to the second. There all others wait for it, so that it
  // alone is named: nobody waits in the contender's group for one who waits here.
  void run(const Contender& contender, const Block& block, std::vector<RankRecord>& records) {
    all_processes_.barrier();
    all_processes_.barrier();
    try {
      if (contender.measure) contender.measure(block, records);
    } catch (const std::exception& error) {  // the processes that do not measure wait as well
      all_processes_.abort(error.what());
      throw;
    }
  }

  // A collective call: every process contributes the records of its ranks.
  Figure gather(const std::vector<RankRecord>& records) {
    std::array<double, 5> largest{};
    std::int64_t wrong = 0;
    for (const auto& record : records) {
      const std::vector<double>& samples = record.seconds;
      const std::array of_rank{quantile(samples, options_.quantile), quantile(samples, 0),
                               quantile(samples, 0.99), quantile(samples, 1),
                               coefficient_of_variation(samples)};
      for (std::size_t i = 0; i < largest.size(); ++i)
        largest[i] = std::max(largest[i], of_rank[i]);
      wrong += static_cast<std::int64_t>(record.wrong);
    }
    all_processes_.all_reduce(std::span(largest), ReduceOp::max);
    all_processes_.all_reduce(std::span(&wrong, 1), ReduceOp::sum);
    return {largest[0],
            {largest[1], largest[2], largest[3], largest[4]},
            wrong,
            records.front().choice};
  }

  std::vector<BenchRow> rows(const std::vector<Call>& calls, const std::vector<Figure>& figures) {
    const auto bandwidth_gbps = [&](const Figure& figure) {
      return bus_bandwidth(calls.front(), layout_.in_set.size, figure.seconds) * 1e-9;
    };
    std::vector<BenchRow> rows;
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      const Contender& contender = contenders_[i];
      if (!contender.backend) continue;
      BenchRow row{.call = calls[i],
                   .ranks = layout_.in_set.size,
                   .backend = contender.name,
                   .choice = figures[i].choice,
                   .spread = figures[i].spread,
                   .wrong = figures[i].wrong,
                   .queued = options_.queued,
                   .queueing = options_.queueing};
      row.ours = contender.ours();
      row.selected = row.ours && contender.algorithm == "auto";
      row.seconds = figures[i].seconds;
      row.predicted_seconds = predicted_seconds(contender, calls[i]);
      row.busbw_gbps = bandwidth_gbps(figures[i]);
      for (std::size_t j = 0; j < contenders_.size(); ++j)
        if (!contenders_[j].backend && contenders_[j].limit == contender.limit)
          row.limit_gbps = bandwidth_gbps(figures[j]);
      if (link_) row.limit_gbps = link_->bytes_per_second * 1e-9;
      rows.push_back(row);
    }
    return rows;
  }

  const BenchOptions& options_;
  const ProcessLayout& layout_;
  const std::optional<collectives::Link> link_ = collectives::link_from_environment();
  std::map<std::string, MachineCosts> costs_;  // by transport; see costs_over()
  ProcessGroup all_processes_;
  std::vector<Contender> contenders_;
};

}  // namespace

void run_bench(const BenchOptions& options, const ProcessLayout& layout,
               const std::function<void(const std::vector<BenchRow>&)>& take) {
  Bench bench(options, layout);
  for (const auto bytes : options.bytes) {
    auto rows = bench.measure(bytes, bench.decide_place(bytes));
    if (options.both_places)
      for (const BenchRow& row : bench.measure(bytes, true)) rows.push_back(row);
    if (layout.in_job.rank == 0) take(rows);
  }
  bench.finish();
}

}  // namespace ringside::cli
