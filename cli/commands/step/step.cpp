// `ringside step`: draws a collective step by step. All ranks run in lockstep on one thread.

#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/options/algorithm_name.hpp"
#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/player/player_data.hpp"
#include "cli/pictures/player/player_page.hpp"
#include "cli/pictures/schedule/schedule_picture.hpp"
#include "cli/pictures/schedule/step_table.hpp"
#include "cli/pictures/terminal.hpp"
#include "cli/pictures/text_file.hpp"
#include "collectives/algorithm_files/algorithm_file.hpp"
#include "collectives/algorithm_files/schedule_json.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/proof/lockstep.hpp"
#include "collectives/proof/verify_algorithm.hpp"

namespace ringside::cli {

namespace {

using namespace collectives;

struct StepOptions {
  std::string collective;  // empty: the file's, otherwise all_reduce
  std::string algorithm;
  int ranks = 0;  // 0: those of the file, otherwise 4
  int root = 0;
  std::string json, html, svg;
};

// The ranks whose contributions a chunk holds. A rank that it holds twice occurs twice.
Json ranks_in(const std::vector<double>& held) {
  Json ranks = Json::array();
  for (size_t rank = 0; rank < held.size(); ++rank) {
    for (int i = 0; i < held[rank]; ++i) ranks.push_back(rank);
  }
  return ranks;
}

Json json_of_states(const std::vector<RankState>& states) {
  Json rows = Json::array();
  const auto ranks = static_cast<std::ptrdiff_t>(states.size());
  for (const RankState& state : states) {
    Json chunks = Json::array();
    for (const std::vector<double>& held : state.chunks)
      chunks.push_back(ranks_in({held.begin(), held.begin() + ranks}));
    rows.push_back({{"chunks", chunks},
                    {"heard_from", ranks_in({state.heard_from.begin(), state.heard_from.end()})}});
  }
  return rows;
}

// Draws each step as it runs; returns the same as JSON.
Json draw_all_steps(const StepTable& table, Collective collective,
                    const std::vector<Schedule>& schedules) {
  const int size = static_cast<int>(schedules.size());
  const int steps = static_cast<int>(schedules[0].steps.size());
  std::vector<RankState> states =
      start_with_contributions(size, schedules[0].chunks, names_chunks(collective));
  table.draw_start(states);
  Json json = {{"start", json_of_states(states)}, {"steps", Json::array()}};
  for (int step = 0; step < steps; ++step) {
    run_step(schedules, step, states);
    table.draw_step(schedules, step, states);
    json["steps"].push_back({{"step", step},
                             {"messages", messages_of(schedules, step)},
                             {"ranks", json_of_states(states)}});
  }
  return json;
}

const Algorithm& algorithm_of(const StepOptions& options) {
  const std::string& collective = options.collective;
  if (!is_algorithm_file(options.algorithm))
    return find_algorithm(collective_named(collective.empty() ? "all_reduce" : collective),
                          options.algorithm);
  const Algorithm& algorithm = load_algorithm(options.algorithm);
  require(collective.empty() || collective == name_of(algorithm.collective),
          "{} is an algorithm for {}, not for {}", options.algorithm, name_of(algorithm.collective),
          collective);
  return algorithm;
}

void step(const StepOptions& given) {
  StepOptions options = given;
  divide_algorithm_name(options.collective, options.algorithm);
  const Algorithm& algorithm = algorithm_of(options);
  options.collective = name_of(algorithm.collective);
  if (!algorithm.only.empty() && options.ranks == 0) {
    options.ranks = algorithm.only[0].size;
    options.root = algorithm.only[0].root;
  }
  if (options.ranks == 0) options.ranks = 4;
  refuse_if(!options.html.empty() && !algorithm.only.empty(),
            "--html plays the algorithms of the catalogue, and {} is a file: draw it with --svg",
            options.algorithm);
  refuse_if(options.root != 0 && !has_root(algorithm.collective),
            "{} has no root: leave out --root", options.collective);
  refuse_if(!options.html.empty() && options.ranks > most_played_ranks,
            "--html plays up to {} ranks, not {}: choose fewer with -n", most_played_ranks,
            options.ranks);
  refuse_if(!options.svg.empty() && options.ranks > most_drawn_ranks,
            "--svg draws up to {} ranks, not {}: choose fewer with -n", most_drawn_ranks,
            options.ranks);
  const std::vector<Schedule> schedules = make_schedules(algorithm, options.ranks, options.root);
  const int steps = static_cast<int>(schedules[0].steps.size());

  const StepTable table(stream_beside(options.json), algorithm, options.ranks,
                        terminal_columns(STDOUT_FILENO).value_or(100), wants_colour());
  table.draw_title(options.root, steps, schedules[0].chunks);
  const Json drawn = draw_all_steps(table, algorithm.collective, schedules);
  const std::vector<std::string> findings = verify(algorithm, options.ranks, options.root);

  if (!options.json.empty()) {
    Json json = {{"collective", options.collective},
                 {"algorithm", algorithm.name},
                 {"ranks", options.ranks}};
    json["root"] = has_root(algorithm.collective) ? Json(options.root) : Json();
    json["chunks"] = schedules[0].chunks;
    json["schedules"] = schedules;
    json.update(drawn);
    json["findings"] = findings;
    write_json_file(options.json, json);
  }
  if (!options.html.empty()) {
    const Json data = player_data(PlayerChoice{algorithm, options.ranks, options.root});
    write_text_file(options.html, player_page(data), "the page");
  }
  if (!options.svg.empty())
    write_text_file(options.svg, svg_of_schedule(algorithm, options.ranks, options.root),
                    "the picture");
  if (!findings.empty()) fail("{}", fmt::join(findings, "\n"));
  std::ostream& out = stream_beside(options.json);
  out << "\nAt the end " << promise_of(algorithm.collective) << ", as " << options.collective
      << " promises.\n";
  if (!options.html.empty()) out << page_line("page", options.html);
}

}  // namespace

void add_step_command(CLI::App& app) {
  const auto [option, args] = add_command(
      app, "step",
      "Draw a collective step by step: which rank holds which contributions; or a pipeline", step);
  std::vector<std::string> names;
  for (const Collective collective : all_collectives) names.emplace_back(name_of(collective));

  option("collective NAME", args.collective,
         fmt::format("{}; or with an algorithm, as in ring_all_reduce [all_reduce]",
                     fmt::join(names, ", ")));
  option("--algorithm NAME", args.algorithm,
         "One of the collective's algorithms, which `ringside prove` lists, or a file, such as "
         "my.json [the first one]");
  option("-n,--ranks N", args.ranks, "Number of ranks, 1 to 64 [those of the file, else 4]",
         in_range(1, 64));
  option("--root RANK", args.root, "The root of a broadcast, reduce, gather or scatter [0]");
  option("--json FILE", args.json,
         "Write the schedules, the steps, and the contents of every rank after each step, to this "
         "file, which --algorithm reads; - writes them to standard output");
  option("--html FILE", args.html,
         "Write a page that plays all collectives, algorithms and pipeline schedules in "
         "a browser, beginning with this one, and compares their costs; up to 16 ranks");
  option("--svg FILE", args.svg,
         "Draw all steps as one picture, which moves in a browser, to this file; up to 8 "
         "ranks");
  const auto refuse = [](const std::string& file) {
    refuse_if(true,
              "--msccl: write JSON (--json my.json), and then type "
              "`ringside msccl my.json --xml {}`",
              file);
  };
  option.with("--msccl FILE", refuse, "").hide();
  add_commands(option.command(), "step");
}

}  // namespace ringside::cli
