// `ringside timeline TRACE`: what each rank of a traced run did when.

#include <string>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/report/recording.hpp"
#include "cli/pictures/report/report.hpp"
#include "cli/pictures/tracks_figure.hpp"
#include "planning/simulation/recorded_step.hpp"

namespace ringside::cli {
namespace {

struct TimelineOptions {
  std::string trace, json, html;
};

void timeline(const TimelineOptions& options) {
  const auto ranks = planning::read_traces(options.trace);
  const auto steps = recorded_steps(ranks);
  require(!steps.empty(),
          "{} has no training step: expected a file of `ringside train --trace` or of "
          "`ringside simulate --model ... --trace`",
          options.trace);
  Report report{"What the ranks did", {{"trace", options.trace}}, {}};
  Json rows = Json::array();
  for (const auto& [name, window] : steps) {
    Figure tracks = tracks_figure("What the ranks did in " + name, ranks, window, 0);
    for (const Json& row : tracks.table.json({{"step", name}})) rows.push_back(row);
    tracks.choice = name;
    report.figures.push_back(std::move(tracks));
  }
  fmt::print(file_beside(options.json), "{}", text_of(report));
  write_report(options.html, report, file_beside(options.json));
  if (!options.json.empty()) write_json_file(options.json, rows);
}

}  // namespace

void add_timeline_command(CLI::App& app) {
  const auto [option, args] =
      add_command(app, "timeline",
                  "Show what each rank of a traced run did when, and how long it waited", timeline);
  option("TRACE", args.trace, "A file of `ringside train --trace` or `ringside simulate --trace`")
      ->required();
  add_json_option(option, args.json);
  option("--html FILE", args.html, "Write a page with the tracks of every rank, to zoom into");
}

}  // namespace ringside::cli
