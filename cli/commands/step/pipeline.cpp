// `ringside step pipeline`: draws a pipeline schedule: what each rank computes when.

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/pipeline/pipeline_picture.hpp"
#include "cli/pictures/player/player_data.hpp"
#include "cli/pictures/player/player_page.hpp"
#include "cli/pictures/python_svg.hpp"
#include "cli/pictures/terminal.hpp"
#include "cli/pictures/text_file.hpp"
#include "parallel/pipeline/csv.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/lower.hpp"
#include "parallel/pipeline/proof/formulas.hpp"
#include "parallel/pipeline/proof/verify.hpp"

namespace ringside::cli {

namespace {

using namespace pipeline_parallel;

struct PipelineOptions {
  std::string schedule = "1f1b";
  int ranks = 0;  // 0: as the file says, or 4
  int micro_batches = 0;
  int stages_per_rank = 0;
  Durations durations;
  std::string svg, csv, json, html;
};

// "F takes 1, B 2"; with the parts of backward where the schedule has them.
std::string in_words(const Durations& durations, bool in_parts) {
  std::string text = fmt::format("F takes {:g}, ", durations.forward);
  text += in_parts ? fmt::format("I {:g}, W {:g}", durations.input(), durations.weight)
                   : fmt::format("B {:g}", durations.backward);
  if (durations.message > 0) text += fmt::format(", a message {:g}", durations.message);
  return text;
}

bool has_parts(const pipeline_parallel::Schedule& schedule) {
  return std::ranges::any_of(schedule.actions, [](const auto& actions) {
    return std::ranges::find(actions, Kind::backward_weight, &pipeline_parallel::Action::kind) !=
           actions.end();
  });
}

std::string title_of(const std::string& name, const pipeline_parallel::Schedule& schedule,
                     const Durations& durations) {
  const std::string stages =
      schedule.stages() == schedule.ranks() ? "" : fmt::format(", {} stages", schedule.stages());
  return fmt::format("{} on {}{}: {}; {}", name, counted(schedule.ranks(), "rank"), stages,
                     counted(schedule.micro_batches, "micro-batch"),
                     in_words(durations, has_parts(schedule)));
}

std::string legend_of(const pipeline_parallel::Schedule& schedule) {
  std::string legend =
      has_parts(schedule)
          ? "F forward; I and W: gradients of input and weights; number: micro-batch.\n"
          : "F forward, B backward; number: micro-batch.\n";
  if (schedule.stages() == 2 * schedule.ranks())
    legend += "Small letters: the second stage of a rank.\n";
  return legend;
}

std::string percent(double part) {
  return fmt::format("{:.1f} %", 100 * part);
}

void print_figures(std::ostream& out, const std::string& name, const TimedSchedule& timed,
                   const Durations& durations) {
  const auto& [schedule, timing] = timed;
  const Setting setting{name, schedule.ranks(), schedule.micro_batches,
                        schedule.stages() / schedule.ranks()};
  out << fmt::format("step       {:g}\n", timing.step);
  out << fmt::format("bubble     {}", percent(timing.bubble()));
  if (const auto bubble = bubble_by_formula(setting, durations))
    out << fmt::format("; by the formula, {}: {}", bubble_formula(name), percent(*bubble));
  out << fmt::format("\nwaiting    {:g} between a rank's first and last computation, {}\n",
                     *std::ranges::max_element(timing.waiting),
                     schedule.ranks() == 1 ? "on rank 0" : "at most");
  const std::vector<int> most = most_in_flight(schedule);
  out << fmt::format(
      "holds      {} activations of a stage at most, on {}\n", fmt::join(most, ", "),
      schedule.ranks() == 1 ? "rank 0" : fmt::format("ranks 0 to {}", schedule.ranks() - 1));
  if (in_flight_by_formula(setting, 0))
    out << fmt::format("           by the formula, {} on rank r\n", in_flight_formula(name));
}

Json json_of(const std::string& name, const TimedSchedule& timed) {
  const auto& [schedule, timing] = timed;
  Json ranks = Json::array();
  const std::vector<int> most = most_in_flight(schedule);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    Json actions = Json::array();
    for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      actions.push_back({{"action", text_of(schedule.actions[rank][i])},
                         {"start", timing.spans[rank][i].start},
                         {"end", timing.spans[rank][i].end}});
    }
    ranks.push_back({{"stages", stages_of(schedule, rank)},
                     {"busy", timing.busy[rank]},
                     {"waiting", timing.waiting[rank]},
                     {"most_in_flight", most[rank]},
                     {"actions", actions}});
  }
  return {{"schedule", name},
          {"ranks", schedule.ranks()},
          {"stages", schedule.stages()},
          {"micro_batches", schedule.micro_batches},
          {"step", timing.step},
          {"bubble", timing.bubble()},
          {"of_rank", ranks}};
}

pipeline_parallel::Schedule schedule_of(const std::string& name, const PipelineOptions& options) {
  const bool from_file = name.starts_with("csv:");
  const int ranks = options.ranks == 0 && !from_file ? 4 : options.ranks;
  const int micro_batches = options.micro_batches == 0 && !from_file ? 8 : options.micro_batches;
  return make_schedule(name, ranks, micro_batches, options.stages_per_rank);
}

void draw(const PipelineOptions& options) {
  const std::string& name = options.schedule;
  const pipeline_parallel::Schedule schedule = schedule_of(name, options);
  const std::vector<std::string> findings = verify(schedule);
  if (!findings.empty()) fail("{}: {}", name, fmt::join(findings, "\n"));

  TimedSchedule timed{.schedule = lower(schedule), .timing = {}};
  timed.timing = time_of(timed.schedule, options.durations);
  std::ostream& out = stream_beside(options.json);
  const int width = terminal_columns(STDOUT_FILENO).value_or(80);
  out << title_of(name, schedule, options.durations) << "\n" << legend_of(schedule) << "\n";
  draw_pipeline(out, timed, width, wants_colour() && !is_stdout(options.json));
  out << "\n";
  print_figures(out, name, timed, options.durations);
  out << "proved: each action once, in order, and no deadlock\n";
  if (!options.svg.empty())
    write_svg_file(options.svg, picture_of(timed, title_of(name, schedule, options.durations)),
                   "the picture");
  if (!options.html.empty())
    write_text_file(options.html,
                    player_page(player_data(PipelineChoice{name, schedule, options.stages_per_rank,
                                                           options.durations})),
                    "the page");
  if (!options.html.empty()) out << page_line("page", options.html);
  if (!options.csv.empty()) write_text_file(options.csv, csv_of(schedule), "the schedule");
  if (!options.json.empty()) write_json_file(options.json, json_of(name, timed));
}

}  // namespace

void add_step_pipeline_command(CLI::App& step) {
  const auto [option, args] = add_command<PipelineOptions>(
      step, "pipeline", "Draw a pipeline schedule: what each rank computes when", draw);
  option("SCHEDULE,--schedule NAME", args.schedule,
         schedule_names() + "; csv:FILE reads your own [1f1b]");
  option("-n,--ranks N", args.ranks, "Number of ranks, 1 to 64 [4]", in_range(1, 64));
  option("--micro-batches M", args.micro_batches, "Micro-batches of a step [8]", in_range(1, 1024));
  option("--stages-per-rank V", args.stages_per_rank,
         "Stages on each rank, for interleaved, looped_bfs and interleaved_zb [2]",
         in_range(1, 64));
  const auto duration = in_range(0, 1e9);
  option("--forward T", args.durations.forward, "Duration of F of a stage [1]", duration);
  option("--backward T", args.durations.backward,
         "Duration of the whole backward of a stage, I and W [2]", duration);
  option("--weight T", args.durations.weight, "The part of the backward that W takes [1]",
         duration);
  option("--message T", args.durations.message, "Time of a message between two ranks [0]",
         duration);
  option("--svg FILE", args.svg, "Draw the picture to this file");
  option("--html FILE", args.html,
         "Write a page that plays all pipeline schedules and collectives in a browser, "
         "beginning with this one; up to 16 ranks and 64 micro-batches");
  option("--csv FILE", args.csv,
         "Write the schedule to this file, in the format of torch.distributed.pipelining");
  option("--json FILE", args.json,
         "Write every action with its times to this file; - writes it to standard output");
}

}  // namespace ringside::cli
