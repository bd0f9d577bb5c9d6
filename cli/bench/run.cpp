#include "cli/bench/run.hpp"

#include <algorithm>
#include <cmath>

#include "cli/bench/contender.hpp"
#include "cli/bench/limits.hpp"
#include "cli/bench/median.hpp"
#include "cli/launcher/meeting_point.hpp"
#include "collectives/group_options.hpp"
#include "collectives/process_group.hpp"
#include "collectives/selection/calibration.hpp"
#include "collectives/selection/link_costs.hpp"

namespace ringside::cli {
namespace {

using collectives::Call;
using collectives::Collective;
using collectives::ProcessGroup;
using collectives::RankInfo;
using collectives::ReduceOp;

constexpr int rounds = 4;                // blocks of a lane
constexpr double sample_seconds = 2e-3;  // shorter calls share a batch
constexpr double lane_seconds = 0.5;     // what the samples of a lane may take for one size, ...
constexpr int fewest_samples = 7;        // ... unless that would be too few for a median

// What all ranks of a lane have measured.
struct Figure {
  double seconds = 0;  // of the slowest rank, the plan's quantile
  std::int64_t wrong = 0;
};

class Bench {
 public:
  Bench(const BenchPlan& plan, const BenchSeat& seat)
      : plan_(plan),
        seat_(seat),
        everybody_(meet_everybody(seat.everybody)),
        lanes_(lanes_of(plan, seat.own.size)) {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      if (i > 0 && lanes_[i].name == lanes_[i - 1].name)
        lanes_[i].takes_part = lanes_[i - 1].takes_part,
        lanes_[i].measure = lanes_[i - 1].measure;  // over the same connections
      else
        open(lanes_[i]);
    }
  }

  std::vector<BenchRow> measure(std::uint64_t bytes) {
    std::vector<Call> calls;
    for (const Lane& lane : lanes_) calls.push_back(call_of(lane, bytes));
    std::vector<std::vector<RankRecord>> records(
        lanes_.size(), std::vector<RankRecord>(static_cast<std::size_t>(seat_.own.size)));
    std::vector<Block> blocks;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      auto trial = records[i];
      run(lanes_[i], {.call = calls[i], .warmup = plan_.warmup, .samples = 3}, trial);
      blocks.push_back(block_for(calls[i], gather(trial).seconds));
    }
    for (int round = 0; round < rounds; ++round)
      for (std::size_t i = 0; i < lanes_.size(); ++i) run(lanes_[i], blocks[i], records[i]);
    std::vector<Figure> figures;
    for (const auto& record : records) figures.push_back(gather(record));
    return rows(calls, figures);
  }

 private:
  // Whose turn it is not may wait for long.
  static ProcessGroup meet_everybody(const RankInfo& rank_info) {
    auto options = collectives::group_options_from_environment();
    options.executor.timeout = Seconds(3600);
    options.link = {};
    return ProcessGroup::over_tcp(rank_info, options);
  }

  // Each lane's ranks meet at a port that rank 0 of all finds free.
  void open(Lane& lane) {
    const ReservedPort reserved;
    std::int32_t port = reserved.number();
    everybody_.broadcast(std::span(&port, 1), 0);
    RankInfo meeting = seat_.own;
    meeting.master_port = static_cast<std::uint16_t>(port);
    if (lane.set == seat_.set) open_lane(lane, meeting);
    everybody_.barrier();
  }

  Call call_of(const Lane& lane, std::uint64_t bytes) {
    Call call;
    call.collective = plan_.collective;
    call.type = plan_.type;
    call.reduce = plan_.op;
    call.count = plan_.collective == Collective::barrier ? 0 : bytes / size_of(plan_.type);
    const bool equal_blocks = call.collective == Collective::gather ||
                              call.collective == Collective::scatter ||
                              call.collective == Collective::all_to_all;
    if (equal_blocks) call.count -= call.count % static_cast<std::uint64_t>(seat_.own.size);
    if (lane.ours()) call.algorithm = algorithm_of(lane, call);
    return call;
  }

  std::uint8_t algorithm_of(const Lane& lane, const Call& call) {
    const auto& all = collectives::all_algorithms();
    if (lane.backend->device &&
        lane.algorithm == "auto")  // nothing was ever measured there: what moves the fewest bytes
      return static_cast<std::uint8_t>(
          &collectives::find_algorithm(call.collective, algorithm_on_device(call.collective)) -
          all.data());
    if (lane.algorithm != "auto")
      return static_cast<std::uint8_t>(
          &collectives::find_algorithm(call.collective, lane.algorithm) - all.data());
    // What a ProcessGroup over the lane's transport would take, by what rank 0 of all knows.
    std::uint8_t rank_info = 0;
    if (everybody_.rank() == 0) {
      auto choice = collectives::group_options_from_environment().algorithms;
      const auto costs = collectives::costs_here(lane.name);
      choice.set_costs(link_ ? collectives::costs_behind(*link_, costs) : costs);
      rank_info = static_cast<std::uint8_t>(
          &choice.choose(call.collective, call.count, call.type, seat_.own.size) - all.data());
    }
    everybody_.broadcast(std::span(&rank_info, 1), 0);
    return rank_info;
  }

  static std::string_view algorithm_on_device(Collective collective) {
    if (collective == Collective::all_reduce) return "two_shot";
    const bool scatters =
        collective == Collective::reduce_scatter || collective == Collective::all_gather;
    return scatters ? "direct" : "";
  }

  Block block_for(const Call& call, double seconds) const {
    Block block{.call = call};
    block.batch = static_cast<int>(
        std::clamp(std::ceil(sample_seconds / std::max(seconds, 1e-8)), 1.0, 10000.0));
    const double fit = lane_seconds / std::max(seconds * block.batch, 1e-6);
    const int samples = plan_.repeat.value_or(std::max(fewest_samples, static_cast<int>(fit)));
    block.samples = (samples + rounds - 1) / rounds;
    block.warmup = seconds > sample_seconds ? std::min(plan_.warmup, 2) : plan_.warmup;
    return block;
  }

  void run(const Lane& lane, const Block& block, std::vector<RankRecord>& records) {
    everybody_.barrier();
    if (lane.measure) lane.measure(block, records);
  }

  // Collective: every process contributes the records of the ranks that it is.
  Figure gather(const std::vector<RankRecord>& records) {
    double slowest = 0;
    std::int64_t wrong = 0;
    for (const auto& record : records) {
      slowest = std::max(slowest, quantile(record.seconds, plan_.quantile));
      wrong += static_cast<std::int64_t>(record.wrong);
    }
    everybody_.all_reduce(std::span(&slowest, 1), ReduceOp::max);
    everybody_.all_reduce(std::span(&wrong, 1), ReduceOp::sum);
    return {slowest, wrong};
  }

  std::vector<BenchRow> rows(const std::vector<Call>& calls,
                             const std::vector<Figure>& figures) const {
    const double bytes = static_cast<double>(calls.front().count * size_of(plan_.type));
    const double factor = bus_factor(plan_.collective, seat_.own.size);
    const auto bandwidth = [&](const Figure& figure) {
      return figure.seconds > 0 ? bytes / figure.seconds * factor * 1e-9 : 0.0;
    };
    std::vector<BenchRow> rows;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const Lane& lane = lanes_[i];
      if (!lane.backend) continue;
      BenchRow row{.call = calls[i],
                   .ranks = seat_.own.size,
                   .backend = lane.name,
                   .wrong = figures[i].wrong};
      row.ours = lane.ours();
      row.seconds = figures[i].seconds;
      row.busbw_gbps = bandwidth(figures[i]);
      for (std::size_t j = 0; j < lanes_.size(); ++j)
        if (!lanes_[j].backend && lanes_[j].limit == lane.limit)
          row.limit_gbps = bandwidth(figures[j]);
      if (link_) row.limit_gbps = link_->bytes_per_second * 1e-9;
      rows.push_back(row);
    }
    return rows;
  }

  const BenchPlan& plan_;
  const BenchSeat& seat_;
  const std::optional<collectives::Link> link_ = collectives::link_from_environment();
  ProcessGroup everybody_;
  std::vector<Lane> lanes_;
};

}  // namespace

void run_bench(const BenchPlan& plan, const BenchSeat& seat,
               const std::function<void(const std::vector<BenchRow>&)>& take) {
  Bench bench(plan, seat);
  for (const auto bytes : plan.bytes) {
    const auto rows = bench.measure(bytes);
    if (seat.everybody.rank == 0) take(rows);
  }
}

}  // namespace ringside::cli
