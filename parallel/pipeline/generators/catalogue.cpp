#include "parallel/pipeline/generators/catalogue.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/system/shared_library.hpp"
#include "base/text/words.hpp"
#include "parallel/pipeline/csv.hpp"
#include "parallel/pipeline/generators/dualpipe_v.hpp"
#include "parallel/pipeline/generators/gpipe.hpp"
#include "parallel/pipeline/generators/interleaved.hpp"
#include "parallel/pipeline/generators/interleaved_zb.hpp"
#include "parallel/pipeline/generators/looped_bfs.hpp"
#include "parallel/pipeline/generators/one_f_one_b.hpp"
#include "parallel/pipeline/generators/zb_h1.hpp"
#include "parallel/pipeline/generators/zb_v.hpp"

namespace ringside::pipeline_parallel {

const std::vector<Generator>& all_generators() {
  static const std::vector<Generator> generators = {
      {.name = "gpipe", .make = [](int p, int, int m, int rank) { return gpipe(p, m, rank); }},
      {.name = "1f1b", .make = [](int p, int, int m, int rank) { return one_f_one_b(p, m, rank); }},
      {.name = "interleaved",
       .most_stages_per_rank = unlimited_stages,
       .default_stages_per_rank = 2,
       .whole_rounds = true,
       .make = interleaved},
      {.name = "looped_bfs",
       .most_stages_per_rank = unlimited_stages,
       .default_stages_per_rank = 2,
       .make = looped_bfs},
      {.name = "zb_h1", .make = [](int p, int, int m, int rank) { return zb_h1(p, m, rank); }},
      {.name = "zb_v",
       .fewest_stages_per_rank = 2,
       .most_stages_per_rank = 2,
       .default_stages_per_rank = 2,
       .placement = [](int p, int) { return v_placement(p); },
       .make = [](int p, int, int m, int rank) { return zb_v(p, m, rank); }},
      {.name = "interleaved_zb",
       .most_stages_per_rank = unlimited_stages,
       .default_stages_per_rank = 2,
       .whole_rounds = true,
       .make = interleaved_zb},
      {.name = "dualpipe_v",
       .fewest_stages_per_rank = 2,
       .most_stages_per_rank = 2,
       .default_stages_per_rank = 2,
       .placement = [](int p, int) { return v_placement(p); },
       .make = [](int p, int, int m, int rank) { return dualpipe_v(p, m, rank); }},
  };
  return generators;
}

static std::vector<std::string> names_of_generators() {
  std::vector<std::string> names;
  for (const Generator& generator : all_generators()) names.emplace_back(generator.name);
  return names;
}

std::string schedule_names() {
  return enumerate(names_of_generators());
}

std::string why_not(const Generator& generator, int ranks, int micro_batches, int stages_per_rank) {
  if (ranks < 1) return fmt::format("a pipeline needs at least 1 rank, not {}", ranks);
  if (micro_batches < 1)
    return fmt::format("a step needs at least 1 micro-batch, not {}", micro_batches);
  const int fewest = generator.fewest_stages_per_rank, most = generator.most_stages_per_rank;
  if (stages_per_rank != 0 && (stages_per_rank < fewest || stages_per_rank > most)) {
    return fmt::format("{} has {} per rank, not {}{}", generator.name,
                       fewest == most ? fmt::format("{} stage{}", fewest, fewest == 1 ? "" : "s")
                                      : fmt::format("{} to {} stages", fewest, most),
                       stages_per_rank, most == 1 ? "; interleaved takes any number" : "");
  }
  if (generator.whole_rounds && micro_batches % ranks != 0) {
    const int below = micro_batches / ranks * ranks;
    return fmt::format(
        "{} works in rounds of as many micro-batches as ranks, so on {} ranks the micro-batches "
        "must be a multiple of {}, such as {}; {} are not",
        generator.name, ranks, ranks,
        below == 0 ? fmt::to_string(ranks) : fmt::format("{} or {}", below, below + ranks),
        micro_batches);
  }
  return "";
}

Schedule make_schedule(const Generator& generator, int ranks, int micro_batches,
                       int stages_per_rank) {
  const std::string reason = why_not(generator, ranks, micro_batches, stages_per_rank);
  require(reason.empty(), "{}", reason);
  if (stages_per_rank == 0) stages_per_rank = generator.default_stages_per_rank;
  Schedule schedule{.micro_batches = micro_batches,
                    .rank_of = generator.placement(ranks, stages_per_rank),
                    .actions = {}};
  for (int rank = 0; rank < ranks; ++rank)
    schedule.actions.push_back(generator.make(ranks, stages_per_rank, micro_batches, rank));
  return schedule;
}

Schedule make_schedule(const std::string& name, int ranks, int micro_batches, int stages_per_rank) {
  if (name.starts_with("csv:")) {
    const std::string file = name.substr(4);
    const Schedule schedule = read_csv(file);
    require(ranks == 0 || schedule.ranks() == ranks,
            "{} is a schedule for {} ranks, one per row, not for {}", file, schedule.ranks(),
            ranks);
    require(micro_batches == 0 || schedule.micro_batches == micro_batches,
            "{} is a schedule of {} micro-batches, not of {}", file, schedule.micro_batches,
            micro_batches);
    require(stages_per_rank == 0 || schedule.stages() == schedule.ranks() * stages_per_rank,
            "{} is a schedule of {} stages, not of {} on each of {} ranks", file, schedule.stages(),
            stages_per_rank, schedule.ranks());
    return schedule;
  }
  if (name.ends_with(".so")) {
    const Generator own{.name = name,
                        .make = variable_of_library<decltype(Generator::make)>(
                            "pipeline schedule", name, "ringside_schedule",
                            "parallel/pipeline/generators/catalogue.hpp")};
    return make_schedule(own, ranks, micro_batches, stages_per_rank);
  }
  for (const Generator& generator : all_generators()) {
    if (generator.name == name)
      return make_schedule(generator, ranks, micro_batches, stages_per_rank);
  }
  fail("there is no schedule named '{}'{}; there are {}, and csv:FILE for your own", name,
       did_you_mean(name, names_of_generators()), schedule_names());
}

}  // namespace ringside::pipeline_parallel
