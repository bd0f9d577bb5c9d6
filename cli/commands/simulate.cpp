// `ringside simulate`: how long a step of a plan, or a collective, takes on a machine that is not
// here.

#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/command.hpp"
#include "cli/planning/collective_curves.hpp"
#include "cli/planning/plan_options.hpp"
#include "cli/planning/recorded_step.hpp"
#include "cli/planning/simulated_traces.hpp"
#include "cli/planning/simulation_page.hpp"
#include "cli/planning/simulation_view.hpp"
#include "cli/report/json_file.hpp"
#include "cli/report/report.hpp"
#include "cli/report/text_file.hpp"
#include "cli/views/account.hpp"
#include "cli/views/pipeline_drawing.hpp"
#include "planning/simulation/simulation.hpp"

namespace ringside::cli {
namespace {

using planning::Machine;

constexpr const char* more = R"(
With --model: a step of a plan. Every rank of the mesh takes the actions of the
pipeline schedule. An action starts when its rank, its message and the ranks
that it communicates with are there. --mesh names axes as in ringside account.
Data-parallel replicas that nothing distinguishes are simulated once.

With all_reduce: the time of each algorithm, with * at the fastest, and its
bandwidth in 10^9 bytes per second. algbw: bytes of the buffer per second.
busbw: algbw times 2 (n-1)/n, which compares with the rate of a link
(nccl-tests). Up to 64 ranks the schedules of all ranks are walked; beyond, a
closed form is computed. in_network: the switches add up, where the topology
says that they can.

A message or a collective costs what it costs on the innermost network that
joins its ranks; nobody else uses it, except with --congestion. --topology takes
a machine by name (ringside account --list) or a JSON file: see
planning/machine.hpp.

Examples:
  ringside simulate --model llama3-405b --mesh pp=16,dp=128,tp=8 \
      --micro-batches 32 --topology llama3 --html step.html
  ringside simulate --model llama3-8b --mesh pp=4,tp=8 --schedule zb_h1 \
      --micro-batches 16 --slow 5=1.3 --svg lanes.svg
  ringside train -n 2 --mesh pp=2 --micro-batches 4 --trace step.json
  ringside simulate --model tiny --topology laptop --mesh pp=2 --micro-batch 4 \
      --micro-batches 4 --against step.json
  ringside simulate --model tiny --topology h100 --mesh pp=2 --micro-batch 4 \
      --micro-batches 16 --schedule zb_h1 --measured step.json
  ringside simulate all_reduce -n 8,1024 --algorithm ring,halving_doubling \
      --bytes 1KB,1MB,1GB --topology h100 --html curves.html)";

struct Arguments {
  std::string collective, topology = "h100", json, html;
  // Of a collective.
  std::vector<std::int64_t> ranks{8};
  std::vector<std::string> algorithms;
  std::vector<std::string> bytes{"1KB", "4KB",  "16KB", "64KB",  "256KB", "1MB",
                                 "4MB", "16MB", "64MB", "256MB", "1GB"};
  // Of a plan.
  PlanOptions plan;
  std::vector<std::string> slow;
  double jitter = 0;
  std::uint64_t seed = 0;
  bool every_rank = false, congestion = false;
  std::string svg, trace, measured, against;
};

// "5=1.3": rank 5 takes 1.3 times as long for every computation.
void take_slow_rank(const std::string& text, planning::Stragglers& stragglers) {
  std::int64_t rank = -1;
  double factor = 0;
  const char* const end = text.data() + text.size();
  auto result = std::from_chars(text.data(), end, rank);
  if (result.ec == std::errc() && result.ptr != end && *result.ptr == '=')
    result = std::from_chars(result.ptr + 1, end, factor);
  if (result.ec != std::errc() || result.ptr != end || !(factor >= 1))
    throw UsageError(fmt::format(
        "--slow {}: a rank and a factor of at least 1 are expected, as in --slow 5=1.3", text));
  stragglers.slow[rank] = factor;
}

// Announces a file that has been written.
void announce(const Arguments& args, const char* what, const std::string& path) {
  fmt::print(file_beside(args.json), "{}: {}\n", what, path);
}

void simulate_plan(const Arguments& args) {
  const Machine machine = planning::find_machine(args.topology);
  const planning::Model model = planning::find_model(args.plan.model);
  planning::SimulationOptions options;
  for (const std::string& slow : args.slow) take_slow_rank(slow, options.stragglers);
  options.stragglers.jitter = args.jitter, options.stragglers.seed = args.seed;
  options.fold = !args.every_rank, options.congestion = args.congestion;
  options.schedule_file = args.plan.schedule_file();
  if (!args.measured.empty()) options.measured = stages_of_trace(read_traces(args.measured));
  const auto simulation = simulate(model, args.plan.plan(model), machine, options);
  std::string text = simulation_text(simulation);
  Json json = simulation_json(simulation);
  const auto traces = simulated_traces(simulation);
  if (!args.against.empty()) {
    const auto measured = read_traces(args.against);
    require(static_cast<std::int64_t>(measured.size()) == simulation.plan.mesh.devices(),
            "{} has traces of {} ranks, but the mesh has {}: name the mesh of that run",
            args.against, measured.size(), simulation.plan.mesh.devices());
    const StepParts predicted = step_parts(traces), seen = step_parts(measured);
    text += comparison_text(predicted, seen);
    json["against"] = comparison_json(predicted, seen);
  }
  fmt::print(file_beside(args.json), "{}", text);
  if (!args.svg.empty()) {
    const std::string title = fmt::format("A step of {} on {}", model.name, args.plan.mesh);
    write_text_file(args.svg, svg_of_pipeline(timed_schedule(simulation), title), "the drawing");
    announce(args, "drawing", args.svg);
  }
  if (!args.trace.empty()) {
    write_json_file(args.trace, chrome_trace(traces));
    announce(args, "trace (for ui.perfetto.dev or chrome://tracing)", args.trace);
  }
  if (!args.html.empty()) {
    write_report(args.html, simulation_page(simulation));
    announce(args, "report (open it in a browser)", args.html);
  }
  std::fflush(file_beside(args.json));
  if (!args.json.empty()) write_json_file(args.json, json);
}

void simulate_collective(const Arguments& args) {
  if (args.collective != "all_reduce")
    throw UsageError(
        fmt::format("there is no simulation of '{}' yet: choose all_reduce", args.collective));
  const Machine machine = planning::find_machine(args.topology);
  Report report{"All-reduce on " + machine.name, {{"machine", sources_text(machine)}}, {}};
  Json json = Json::array();
  std::string text;
  for (const std::int64_t ranks : args.ranks) {
    std::vector<std::string> algorithms = args.algorithms;
    if (algorithms.empty()) {
      algorithms = planning::closed_form_names();
      if (machine.level_for(ranks).in_network_efficiency > 0) algorithms.emplace_back("in_network");
    }
    const auto times = collective_times(algorithms, args.bytes, ranks, machine);
    text +=
        fmt::format("{}{}", text.empty() ? "" : "\n", collective_table(algorithms, times, machine));
    for (const Json& row : collective_json(times, machine)) json.push_back(row);
    for (Figure& figure : collective_figures(algorithms, times, machine))
      report.figures.push_back(std::move(figure));
  }
  fmt::print(file_beside(args.json), "{}", text);
  std::fflush(file_beside(args.json));
  if (!args.json.empty()) write_json_file(args.json, json);
  if (args.html.empty()) return;
  write_report(args.html, report);
  announce(args, "report (open it in a browser)", args.html);
}

void simulate_as_asked(const Arguments& args) {
  if (!args.collective.empty() && !args.plan.model.empty())
    throw UsageError("give either a collective or --model, not both");
  if (!args.collective.empty()) return simulate_collective(args);
  if (args.plan.model.empty())
    throw UsageError("what is to be simulated? Give --model and --mesh for a step, or all_reduce");
  simulate_plan(args);
}

void add_straggler_options(CLI::App& command, Arguments& args) {
  command
      .add_option("--slow", args.slow,
                  "Slow ranks: 5=1.3 lets rank 5 take 1.3 times as long for each computation")
      ->delimiter(',')
      ->type_name("RANK=FACTOR,...");
  command
      .add_option("--jitter", args.jitter,
                  "Each computation of a rank takes up to this share longer, at random [0]")
      ->type_name("SHARE")
      ->check(CLI::Range(0.0, 10.0).description(""));
  command.add_option("--seed", args.seed, "Seed of --jitter [0]")->type_name("N");
  command.add_flag("--congestion", args.congestion,
                   "Messages and reductions share links: fair rates, computed again whenever one "
                   "starts or ends");
  command.add_flag("--every-rank", args.every_rank,
                   "Simulate every replica, also those that do the same as another");
}

void add_collective_options(CLI::App& command, Arguments& args) {
  command.add_option("-n,--ranks", args.ranks, "Of a collective: numbers of ranks, at least 2 [8]")
      ->delimiter(',')
      ->type_name("N,...")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1'000'000}).description(""));
  command
      .add_option(
          "--algorithm", args.algorithms,
          fmt::format("Of a collective: algorithms; beyond {} ranks only those of the "
                      "default [{}, and in_network where switches add up]",
                      planning::most_ranks_walked, fmt::join(planning::closed_form_names(), ",")))
      ->delimiter(',')
      ->type_name("NAME,...");
  command.add_option("--bytes", args.bytes, "Of a collective: sizes of the buffer [1KB to 1GB]")
      ->delimiter(',')
      ->type_name("SIZE,...");
}

}  // namespace

void add_simulate_command(CLI::App& app) {
  const auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand(
             "simulate",
             "Predict the time of a step, or of a collective, on a machine that is not here")
          ->footer(more);
  command->add_option("collective", args->collective, "all_reduce; or else give --model")
      ->type_name("NAME");
  command
      ->add_option("--topology", args->topology, "Device and network: a name or a JSON file [h100]")
      ->type_name("MACHINE");
  args->plan.add_model_to(*command);
  args->plan.add_to(*command, true);
  add_straggler_options(*command, *args);
  command->add_option("--svg", args->svg, "Draw the lanes of a step into this file")
      ->type_name("FILE");
  command
      ->add_option("--trace", args->trace,
                   "Write the step as a trace for ui.perfetto.dev or chrome://tracing")
      ->type_name("FILE");
  command
      ->add_option("--measured", args->measured,
                   "Take how long each stage computes from a trace of `ringside train --trace`, "
                   "not from formulas")
      ->type_name("FILE");
  command
      ->add_option("--against", args->against,
                   "A trace of `ringside train --trace`: predicted beside measured")
      ->type_name("FILE");
  add_collective_options(*command, *args);
  command
      ->add_option("--json", args->json,
                   "Write the figures to this file; - writes them to standard output")
      ->type_name("FILE");
  command->add_option("--html", args->html, "Write a page with pictures to this file")
      ->type_name("FILE");
  command->callback([args] { simulate_as_asked(*args); });
}

}  // namespace ringside::cli
