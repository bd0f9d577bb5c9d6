#include "bench/training/step_options.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "autograd/kernels/threads/parallel.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "cli/pictures/numbers.hpp"
#include "collectives/transport/link.hpp"

namespace ringside::cli {

transformer::Config StepOptions::config() const {
  transformer::Config config = transformer::named_config(model);
  config.sequence = std::max(config.sequence, sequence);
  return config;
}

transformer::Batch StepOptions::sequences(std::int64_t first, std::int64_t count,
                                          std::span<const transformer::TokenRange> tokens) const {
  const auto vocabulary = static_cast<std::uint64_t>(config().vocabulary);
  const transformer::TokenRange all{0, sequence};
  if (tokens.empty()) tokens = std::span(&all, 1);
  transformer::Batch chosen{count, 0, {}, {}};
  for (const auto& [begin, n] : tokens) chosen.length += n;
  const auto append_to = [&](std::vector<std::int32_t>& row, std::int64_t stream) {
    for (const auto& [begin, n] : tokens)
      for (std::int64_t i = begin; i < begin + n; ++i)
        row.push_back(static_cast<std::int32_t>(random_below(
            vocabulary, 1, static_cast<std::uint64_t>(stream), static_cast<std::uint64_t>(i))));
  };
  for (std::int64_t s = first; s < first + count; ++s)
    append_to(chosen.input, 2 * s), append_to(chosen.target, 2 * s + 1);
  return chosen;
}

std::string BenchRun::title() const {
  const std::string behind = link.empty() ? "" : ", each behind a link of " + link,
                    where = ranks == 0 ? ""
                                       : fmt::format(" on {} over {}{}", counted(ranks, "rank"),
                                                     backend, behind),
                    each = ranks == 0 ? "" : " each", on = device == "cpu" ? "" : ", on " + device;
  return fmt::format("{}: {} parameters{}; batch {} x {}{}, {}, AdamW, {}{}{}", model,
                     with_unit(static_cast<double>(parameters)), where, batch, sequence, each,
                     dtype, counted(threads, "thread"), each, on);
}

Facts BenchRun::facts() const {
  Facts facts = {{"model", model},       {"parameters", parameters}, {"batch", batch},
                 {"sequence", sequence}, {"threads", threads},       {"type", dtype},
                 {"device", device}};
  if (ranks > 0)
    facts.insert(facts.end(), {{"ranks", ranks},
                               {"backend", backend},
                               {"link", link.empty() ? Cell(nullptr) : Cell(link)}});
  return facts;
}

BenchRun describe_run(const StepOptions& options, const std::string& device,
                      const collectives::ProcessGroup* group) {
  BenchRun run{.model = options.model, .dtype = options.dtype, .device = device};
  run.parameters = parameter_count(options.config());
  run.batch = options.batch, run.sequence = options.sequence, run.steps = options.steps;
  run.threads = autograd::threads();
  if (const auto link = collectives::link_from_environment()) run.link = to_text(*link);
  if (group) run.ranks = group->size(), run.backend = group->backend_name();
  return run;
}

void write_results(const std::vector<BenchResult>& results, const std::string& json_path) {
  std::FILE* const out = file_beside(json_path);
  Json all = Json::array();
  for (const BenchResult& result : results) {
    fmt::print(out, "{}{}", &result == &results.front() ? "" : "\n", result.text);
    const Json rows = result.figures.is_array() ? result.figures : Json::array({result.figures});
    for (const Json& row : rows) all.push_back(row);
  }
  std::fflush(out);
  if (json_path.empty()) return;
  write_json_file(json_path, results.size() == 1 ? results[0].figures : all);
}

}  // namespace ringside::cli
