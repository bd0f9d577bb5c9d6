// `ringside bench ddp`: measures the communication of each data-parallel strategy, beside the same
// step without communication.
#include <algorithm>
#include <memory>
#include <span>

#include <CLI/CLI.hpp>

#include "autograd/kernels/profile.hpp"
#include "base/clock.hpp"
#include "cli/bench/training/ddp_report.hpp"
#include "cli/bench/training/strategies.hpp"
#include "cli/command.hpp"
#include "cli/commands/bench/step_arguments.hpp"
#include "cli/pictures/median.hpp"
#include "collectives/work.hpp"
#include "parallel/tensor_collectives.hpp"

namespace ringside::cli {
namespace {

using collectives::ProcessGroup;
using collectives::ReduceOp;

constexpr const char* more = R"(
Columns: step, network and exposed are medians over the steps; each step counts
with its slowest rank. network: calls were running. exposed: the rank waited
for them, be it for the network or for a slower rank. calls and MB: per rank
and step. ratio: step time / time of a step without communication, in which
each rank does the same work alone, at the same time. The strategies take turns
step by step, so that changes of the machine affect all alike.

Two predictions of the exposed time (docs/ddp.md) take o and w from all-reduces
of the same run: the formula T(n) = s/(w n) + n o, and the buckets followed in
time. The second one chooses four bucket sizes, the best by it among them.

Examples:
  ringside bench ddp -n 2 --model lab
  ringside bench ddp -n 2 --backend shm,tcp --strategies bucketed
      two backends in turn, beside one step without communication
  ringside bench ddp -n 2 --model lab --link 1Gbps,50us
      as over a network of 1 Gbps
  ringside bench ddp -n 2 --model tiny --link 500Mbps,50us --report ddp.html
  ringside bench ddp -n 2 --model lab --device cuda --device-backend nccl)";

struct Arguments : StepArguments {
  std::vector<std::string> strategies{"naive", "flat", "overlap", "bucketed"};
  std::string svg, report;
  std::vector<double> buckets;  // empty: chosen for the model
};

constexpr std::size_t sizes_measured = 4;  // of those that are chosen

// What to measure. The step without communication is first; it is the same for all backends.
std::vector<StrategyName> names_of(const Arguments& args, const std::vector<double>& buckets) {
  std::vector<StrategyName> names{{"none", {}, 0}};
  for (std::size_t backend = 0; backend < args.backends.size(); ++backend) {
    for (const auto& strategy : args.strategies) {
      if (strategy != "bucketed")
        names.push_back({strategy, {}, backend});
      else
        for (const double mb : buckets) names.push_back({strategy, mb, backend});
    }
  }
  return names;
}

class DdpBench {
 public:
  DdpBench(const Arguments& args, std::span<ProcessGroup> groups)
      : args_(args),
        groups_(groups),
        dtype_(autograd::dtype_named(args.dtype)),
        device_(device_from(args.device, dtype_)),
        forecast_(forecast()),
        names_(names_of(args, buckets_to_measure())),
        bench_(groups[0], args.config(), dtype_, device_) {
    add_strategies(bench_, args, groups, names_);
  }

  // The figures of each backend. Every rank must call it; they are complete on rank 0 only.
  std::vector<DdpFigures> measure() {
    const std::vector<StrategyRow> rows = measure_strategies(bench_, args_.steps, names_);
    std::vector<DdpFigures> all;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      DdpFigures& figures = all.emplace_back();
      figures.run = describe_run(args_, args_.device.name, &groups_[g]);
      for (const StrategyRow& row : rows)
        if (row.strategy == "none" || row.group == g) figures.rows.push_back(row);
      figures.all_reduces = forecast_.all_reduces[g];
      figures.buckets = ddp::fit_bucket_model(figures.all_reduces);
      figures.sizes = forecast_.sizes, figures.backward = forecast_.backward;
    }
    if (!args_.report.empty()) trace_one_step_each(all[0]);
    return all;
  }

 private:
  // Of a gradient's element.
  double element_bytes() const { return static_cast<double>(size_of(dtype_)); }

  using AllReduces = std::vector<std::pair<double, double>>;  // bytes and seconds

  struct Forecast {
    std::vector<BucketSize> sizes;
    double backward = 0;                  // seconds
    std::vector<AllReduces> all_reduces;  // over each group
  };

  // Measures backward without communication, and all-reduces, before the strategies are made.
  Forecast forecast() const {
    const transformer::Model model(args_.config(), dtype_, device_);
    const BackwardTimes times = time_backward(
        model, args_.sequences(groups_[0].rank() * args_.batch, args_.batch), groups_[0]);
    const double bytes = element_bytes() * static_cast<double>(parameter_count(args_.config()));
    Forecast forecast{bucket_sizes(model, times), times.seconds, {}};
    for (ProcessGroup& group : groups_)
      forecast.all_reduces.push_back(time_all_reduces(group, bytes));
    return forecast;
  }

  // In MB, the same on every rank.
  std::vector<double> buckets_to_measure() const {
    if (!args_.buckets.empty()) return args_.buckets;
    std::vector<double> sizes =
        sizes_to_measure(forecast_.sizes, ddp::fit_bucket_model(forecast_.all_reduces[0]),
                         forecast_.backward, sizes_measured);
    groups_[0].broadcast(std::span(sizes), 0);
    return sizes;
  }

  // All-reduces from the size of a small parameter to all gradients: the slowest rank's median. The
  // sizes take turns: a moment in which the machine is busy with something else lasts longer than
  // many small calls, and must not slow only them.
  AllReduces time_all_reduces(ProcessGroup& group, double gradient_bytes) const {
    constexpr int samples = 7;
    std::vector<autograd::Tensor> tensors;
    for (const double bytes : {2e3, 16e3, 128e3, 1e6, 4e6, 16e6, 64e6}) {
      if (bytes > gradient_bytes && tensors.size() >= 2) break;
      tensors.push_back(autograd::Tensor::full({static_cast<std::int64_t>(bytes / element_bytes())},
                                               1, dtype_, device_));
    }
    std::vector<std::vector<double>> seconds(tensors.size());
    for (int i = 0; i <= samples; ++i)
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        group.barrier();
        const auto start = Clock::now();
        // As the strategies do.
        parallel::all_reduce_mean_async(tensors[t], group, "of the bench").wait();
        if (i > 0) seconds[t].push_back(seconds_since(start));
      }
    AllReduces result;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      double slowest = median(seconds[t]);
      group.all_reduce(std::span(&slowest, 1), ReduceOp::max);
      result.emplace_back(static_cast<double>(tensors[t].elements()) * element_bytes(), slowest);
    }
    return result;
  }

  void trace_one_step_each(DdpFigures& figures) {
    Trace trace;
    for (std::size_t c = 0; c < figures.rows.size(); ++c) {
      groups_[0].barrier();
      const std::string name = "step " + figures.rows[c].text();
      const Trace::On on(trace);
      const autograd::Profile profile;
      const TracedPhase whole(name.c_str());
      bench_.step(c);
    }
    groups_[0].barrier();
    figures.traces = gather_traces(trace, groups_[0]);
    for (const auto& rank : figures.traces)
      for (const auto& span : rank.spans) take_window(figures, span);
  }

  // The window of a strategy's step: from the first rank's begin to the last rank's end.
  static void take_window(DdpFigures& figures, const TracedSpan& span) {
    if (span.kind != Trace::Kind::phase || !span.name.starts_with("step ")) return;
    const std::string name = span.name.substr(5);
    const auto found = std::find_if(figures.windows.begin(), figures.windows.end(),
                                    [&](const auto& w) { return w.first == name; });
    if (found == figures.windows.end())
      return void(figures.windows.push_back({name, {span.start, span.end}}));
    found->second = {std::min(found->second.begin, span.start),
                     std::max(found->second.end, span.end)};
  }

  const Arguments& args_;
  std::span<ProcessGroup> groups_;
  autograd::DType dtype_;
  autograd::Device device_;
  Forecast forecast_;
  std::vector<StrategyName> names_;
  StepBench bench_;
};

void write_outputs(const Arguments& args, const std::vector<DdpFigures>& all) {
  std::FILE* const out = file_beside(args.json);
  for (const DdpFigures& figures : all)
    fmt::print(out, "{}{}", &figures == &all.front() ? "" : "\n", ddp_table(figures));
  if (!args.json.empty()) {
    Json json = Json::array();
    for (const DdpFigures& figures : all) json.push_back(to_json(figures));
    write_json_file(args.json, all.size() == 1 ? json[0] : json);
  }
  if (!args.svg.empty()) {
    const DdpFigures& shown = all[0];
    const std::string title = fmt::format("{} on {} ranks", shown.run.model, shown.run.ranks);
    write_text_file(args.svg, svg_file(title, {bucket_chart(shown.bucket_study())}), "the drawing");
  }
  if (!args.report.empty()) {
    write_report(args.report, ddp_report(all[0]));
    fmt::print(out, "report: {} (open it in a browser)\n", args.report);
  }
  std::fflush(out);
}

void run(const Arguments& args) {
  if (args.backends.size() > 1 && !(args.svg.empty() && args.report.empty()))
    throw UsageError(
        "--svg and --report show one backend: name one with --backend, or leave them out");
  const auto memory = [&](int ranks, autograd::Device device) {
    const auto buckets =
        args.buckets.empty() ? std::vector<double>(sizes_measured, 1) : args.buckets;
    return std::vector{memory_of_strategies(args, names_of(args, buckets), ranks, device)};
  };
  run_on_step_ranks(args, memory,
                    "all strategies are in memory together: leave out some with --strategies or "
                    "--buckets, or choose a smaller model",
                    [&](std::span<ProcessGroup> groups) {
                      const std::vector<DdpFigures> figures = DdpBench(args, groups).measure();
                      if (groups[0].rank() == 0) write_outputs(args, figures);
                    });
}

}  // namespace

void add_bench_ddp_command(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "ddp",
      "Measure data-parallel strategies: the cost of communication, and how much of it is hidden");
  const auto args = std::make_shared<Arguments>();
  add_strategies_options(*command, *args, args->strategies);
  add_dtype_option(*command, args->dtype);
  command
      ->add_option("--buckets", args->buckets,
                   "Bucket sizes of bucketed, in 10^6 bytes [four for the size of the model, the "
                   "predicted best among them]")
      ->delimiter(',')
      ->type_name("MB,...")
      ->check(CLI::PositiveNumber.description(""));
  command->add_option("--svg", args->svg, "Draw exposed communication by bucket size to this file")
      ->type_name("FILE");
  command->add_option("--report", args->report, "Write an HTML page with all figures to this file")
      ->type_name("FILE");
  command->footer(more);
  command->callback([args] { run(*args); });
}

}  // namespace ringside::cli
