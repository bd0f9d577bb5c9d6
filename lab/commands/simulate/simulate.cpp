// `ringside simulate`: how long a step of a plan, or a collective, takes on a machine that is not
// here.

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/pipeline/pipeline_picture.hpp"
#include "cli/pictures/report/report.hpp"
#include "cli/pictures/text_file.hpp"
#include "collectives/trace/trace_file.hpp"
#include "lab/pictures/account.hpp"
#include "lab/pictures/collective_curves.hpp"
#include "lab/pictures/comparison.hpp"
#include "lab/pictures/simulated_traces.hpp"
#include "lab/pictures/simulation_report.hpp"
#include "lab/plan_options.hpp"
#include "planning/simulation/recorded_step.hpp"
#include "planning/simulation/simulation.hpp"

namespace ringside::cli {
namespace {

using planning::Machine;

struct SimulateArguments {
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
  refuse_if(result.ec != std::errc() || result.ptr != end || !(factor >= 1),
            "--slow {}: a rank and a factor of at least 1 are expected, as in --slow 5=1.3", text);
  stragglers.slow[rank] = factor;
}

// Announces a file that has been written.
void announce(const SimulateArguments& args, const char* what, const std::string& path) {
  fmt::print(file_beside(args.json), "{}: {}\n", what, path);
}

void simulate_plan(const SimulateArguments& args) {
  const Machine machine = args.plan.machine(args.topology);
  const planning::Model model = planning::find_model(args.plan.model);
  planning::SimulationOptions options;
  for (const std::string& slow : args.slow) take_slow_rank(slow, options.stragglers);
  options.stragglers.jitter = args.jitter, options.stragglers.seed = args.seed;
  options.fold = !args.every_rank, options.congestion = args.congestion;
  if (!args.measured.empty())
    options.measured = planning::stages_of_trace(planning::read_traces(args.measured));
  const auto simulation = simulate(model, args.plan.plan(model), machine, options);
  Report report = simulation_report(simulation);
  std::string text = text_of(report);
  Json json = simulation_json(simulation);
  const auto traces = simulated_traces(simulation);
  if (!args.against.empty()) {
    const auto measured = planning::read_traces(args.against);
    require(static_cast<std::int64_t>(measured.size()) == simulation.plan.mesh.ranks(),
            "{} has traces of {} ranks, but the mesh has {}: name the mesh of that run",
            args.against, measured.size(), simulation.plan.mesh.ranks());
    const planning::StepParts predicted = planning::step_parts(traces),
                              seen = planning::step_parts(measured);
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
    write_json_file(args.trace, collectives::chrome_trace(traces));
    announce(args, "trace, for ui.perfetto.dev or chrome://tracing", args.trace);
  }
  if (!args.html.empty())
    report.figures.insert(report.figures.begin(), simulation_lanes(simulation));
  write_report(args.html, report, file_beside(args.json));
  if (!args.json.empty()) write_json_file(args.json, json);
}

void simulate_collective(const SimulateArguments& args) {
  const std::vector<std::string> known = planning::simulated_collectives();
  refuse_if(std::ranges::find(known, args.collective) == known.end(),
            "there is no simulation of '{}': choose one of {}", args.collective,
            fmt::join(known, ", "));
  const collectives::Collective collective = collectives::collective_named(args.collective);
  const Machine machine = planning::find_machine(args.topology);
  Report report{fmt::format("{} on {}", args.collective, machine.name),
                {{"machine", sources_text(machine)}},
                {}};
  Json json = Json::array();
  std::string text;
  for (const std::int64_t ranks : args.ranks) {
    const std::vector<std::string> algorithms =
        args.algorithms.empty() ? planning::algorithms_on(collective, ranks, machine)
                                : args.algorithms;
    const auto times = collective_times(collective, algorithms, args.bytes, ranks, machine);
    text += fmt::format("{}{}", text.empty() ? "" : "\n", collective_table(times, machine));
    for (const Json& row : collective_json(times, machine)) json.push_back(row);
    report.figures.push_back(collective_figure(times, machine));
  }
  fmt::print(file_beside(args.json), "{}", text);
  if (!args.json.empty()) write_json_file(args.json, json);
  write_report(args.html, report, file_beside(args.json));
}

void simulate_as_asked(const SimulateArguments& args) {
  refuse_if(!args.collective.empty() && !args.plan.model.empty(),
            "give either a collective or --model, not both");
  if (!args.collective.empty()) return simulate_collective(args);
  refuse_if(args.plan.model.empty(),
            "what is to be simulated? Give --model and --mesh for a step, or all_reduce");
  simulate_plan(args);
}

void add_straggler_options(const Options& option, SimulateArguments& args) {
  option("--slow RANK=FACTOR,...", args.slow,
         "Slow ranks: 5=1.3 lets rank 5 take 1.3 times as long for each computation");
  option("--jitter SHARE", args.jitter,
         "Each computation of a rank takes up to this share longer, at random [0]",
         in_range(0.0, 10.0));
  option("--seed N", args.seed, "Seed of --jitter [0]");
  option.flag("--congestion", args.congestion,
              "Messages and reductions share links: fair rates, computed again whenever one "
              "starts or ends");
  option.flag("--every-rank", args.every_rank,
              "Simulate every replica, also those that do the same as another");
}

void add_collective_options(const Options& option, SimulateArguments& args) {
  option("-n,--ranks N,...", args.ranks, "Of a collective: numbers of ranks, at least 2 [8]",
         in_range(2, 1e6));
  option("--algorithm NAME,...", args.algorithms,
         fmt::format(
             "Of a collective: algorithms, or files of some; beyond {} ranks only those of the "
             "default [those with a closed form: of all_reduce {}, double_tree over several "
             "servers, and in_network where switches add up; hierarchical by name]",
             planning::most_ranks_walked,
             fmt::join(planning::closed_form_names(collectives::Collective::all_reduce), ",")));
  option("--bytes SIZE,...", args.bytes, "Of a collective: sizes of the buffer [1KB to 1GB]");
}

}  // namespace

void add_simulate_command(CLI::App& app) {
  const auto [option, args] =
      add_command(app, "simulate",
                  "Predict the time of a step, or of a collective, on a machine that is not here",
                  simulate_as_asked);
  option(
      "collective NAME", args.collective,
      fmt::format("{}; or else give --model", fmt::join(planning::simulated_collectives(), ", ")));
  option("--topology MACHINE", args.topology, "Device and network: a name or a JSON file [h100]");
  args.plan.add_to(option);
  add_straggler_options(option, args);
  option("--svg FILE", args.svg, "Draw the lanes of a step into this file");
  option("--trace FILE", args.trace,
         "Write the step as a trace for ui.perfetto.dev or chrome://tracing");
  option("--measured FILE", args.measured,
         "Take how long each stage computes from a trace of `ringside train --trace`, "
         "not from formulas");
  option("--against FILE", args.against,
         "A trace of `ringside train --trace`: predicted beside measured");
  add_collective_options(option, args);
  add_json_option(option, args.json);
  option("--html FILE", args.html, "Write a page with pictures to this file");
}

}  // namespace ringside::cli
