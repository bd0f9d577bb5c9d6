#include "cli/pictures/player/player_data.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/player/cost_lines.hpp"
#include "cli/pictures/schedule/step_table.hpp"
#include "collectives/proof/disagreements.hpp"
#include "collectives/proof/lockstep.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"

namespace ringside::cli {

using namespace collectives;

namespace {

constexpr std::uint64_t slice_bytes = 256 * 1024;  // of the transports threads and tcp

Json columns_of(Collective collective, int chunks) {
  Json columns = Json::array();
  if (collective == Collective::barrier) return {"has heard from"};
  for (int chunk = 0; chunk < chunks; ++chunk) columns.push_back(fmt::to_string(chunk));
  return columns;
}

Json play_of(const Algorithm& algorithm, int ranks, int root) {
  const std::vector<Schedule> schedules = make_schedules(algorithm, ranks, root);
  const Collective collective = algorithm.collective;
  std::vector<RankState> states =
      start_with_contributions(ranks, schedules[0].chunks, names_chunks(collective));
  Json play = {{"root", has_root(collective) ? Json(root) : Json()},
               {"columns", columns_of(collective, schedules[0].chunks)},
               {"start", cell_names(collective, states)},
               {"steps", Json::array()}};
  for (int step = 0; step < static_cast<int>(schedules[0].steps.size()); ++step) {
    run_step(schedules, step, states);
    play["steps"].push_back({{"says", what_arrives(schedules, step)},
                             {"messages", messages_of(schedules, step)},
                             {"cells", cell_names(collective, states)}});
  }
  return play;
}

// [size][line]: messages, bytes.
Json costs_of(const Algorithm& algorithm, int ranks, int root) {
  const std::vector<Schedule> schedules = make_schedules(algorithm, ranks, root);
  Json costs = Json::array();
  for (const std::uint64_t bytes : played_sizes()) {
    Json lines = Json::array();
    const Chunks chunks = Chunks::even(bytes, schedules[0].chunks);
    for (const CostLine& line : cost_lines(schedules, chunks, slice_bytes))
      lines.push_back({line.messages, line.bytes});
    costs.push_back(lines);
  }
  return costs;
}

Json family_of(Collective collective, const PlayerChoice& choice) {
  Json algorithms = Json::array();
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != collective) continue;
    Json plays, costs;
    for (const int ranks : played_ranks(choice.ranks)) {
      const int root = has_root(collective) ? std::min(choice.root, ranks - 1) : 0;
      plays[fmt::to_string(ranks)] = play_of(algorithm, ranks, root);
      costs[fmt::to_string(ranks)] = costs_of(algorithm, ranks, root);
    }
    algorithms.push_back({{"name", algorithm.name},
                          {"cautionary", algorithm.cautionary},
                          {"plays", plays},
                          {"costs", costs}});
  }
  return {{"name", name_of(collective)},
          {"promise", promise_of(collective)},
          {"cell", meaning_of_cell(collective) + "."},
          {"row", "rank"},
          {"column", "chunk"},
          {"algorithms", algorithms}};
}

}  // namespace

Json messages_of(const std::vector<Schedule>& schedules, int step) {
  Json messages = Json::array();
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    const std::optional<Send>& send = schedules[rank].steps[step].send;
    if (!send) continue;
    const Action action = schedules[send->to].steps[step].receive->action;
    std::vector<int> taken, chunks;
    for (int i = 0; i < send->chunks.count; ++i) {
      taken.push_back(send->taken().at(i));
      chunks.push_back(send->chunks.at(i));
    }
    messages.push_back({{"from", rank},
                        {"to", send->to},
                        {"taken", taken},
                        {"chunks", chunks},
                        {"action", action == Action::add ? "add" : "overwrite"},
                        {"input", send->input.has_value()},
                        {"label", range_text(send->taken())},
                        {"words", in_words(*send)}});
  }
  return messages;
}

std::vector<int> played_ranks(int chosen) {
  std::vector<int> ranks(7);
  std::iota(ranks.begin(), ranks.end(), 2);
  if (chosen < 2) ranks.insert(ranks.begin(), chosen);
  if (chosen > 8) ranks.push_back(chosen);
  return ranks;
}

std::vector<std::uint64_t> played_sizes() {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = 1024; bytes <= 32 * 1024 * 1024; bytes *= 2) sizes.push_back(bytes);
  return sizes;
}

namespace {

void require_playable(int ranks) {
  require(ranks >= 1 && ranks <= most_played_ranks,
          "the page plays 1 to {} ranks, but was asked for {}: choose fewer with -n",
          most_played_ranks, ranks);
}

Json all_families(const PlayerChoice& choice, const PipelineChoice& pipeline, const Json& first) {
  Json families = Json::array();
  for (const Collective collective : all_collectives)
    families.push_back(family_of(collective, choice));
  families.push_back(pipeline_family(pipeline));
  return {{"families", families},
          {"sizes", played_sizes()},
          {"slice_bytes", slice_bytes},
          {"first", first}};
}

}  // namespace

Json player_data(const PlayerChoice& choice) {
  require_playable(choice.ranks);
  const PipelineChoice pipeline{.name = "1f1b",
                                .schedule = pipeline_parallel::make_schedule("1f1b", 4, 8)};
  return all_families(choice, pipeline,
                      {{"family", name_of(choice.algorithm.collective)},
                       {"algorithm", choice.algorithm.name},
                       {"ranks", choice.ranks}});
}

Json player_data(const PipelineChoice& choice) {
  require_playable(choice.schedule.ranks());
  require(choice.schedule.micro_batches <= most_played_micro_batches,
          "the page plays up to {} micro-batches, but was asked for {}: choose fewer with "
          "--micro-batches",
          most_played_micro_batches, choice.schedule.micro_batches);
  return all_families({find_algorithm(Collective::all_reduce), 4, 0}, choice,
                      {{"family", "pipeline"},
                       {"algorithm", choice.name},
                       {"ranks", choice.schedule.ranks()},
                       {"micro_batches", choice.schedule.micro_batches}});
}

}  // namespace ringside::cli
