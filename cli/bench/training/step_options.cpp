#include "cli/bench/training/step_options.hpp"

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

transformer::Batch StepOptions::sequences(std::int64_t first, std::int64_t count) const {
  const auto vocabulary = static_cast<std::uint64_t>(config().vocabulary);
  transformer::Batch chosen{count, sequence, {}, {}};
  const auto append_to = [&](std::vector<std::int32_t>& row, std::int64_t stream) {
    for (std::int64_t i = 0; i < sequence; ++i)
      row.push_back(static_cast<std::int32_t>(random_below(
          vocabulary, 1, static_cast<std::uint64_t>(stream), static_cast<std::uint64_t>(i))));
  };
  for (std::int64_t s = first; s < first + count; ++s)
    append_to(chosen.input, 2 * s), append_to(chosen.target, 2 * s + 1);
  return chosen;
}

Facts BenchRun::facts(std::initializer_list<std::string_view> keys) const {
  const Facts all = {{"model", model},
                     {"parameters", parameters},
                     {"ranks", ranks},
                     {"backend", backend},
                     {"link", link.empty() ? Cell(nullptr) : Cell(link)},
                     {"batch", batch},
                     {"sequence", sequence},
                     {"threads", threads},
                     {"type", dtype},
                     {"device", device}};
  Facts chosen;
  for (const std::string_view key : keys) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& fact) { return fact.first == key; });
    require(found != all.end(), "there is no fact '{}' of a run", key);
    chosen.push_back(*found);
  }
  return chosen;
}

std::string BenchRun::parameters_text() const {
  return with_unit(static_cast<double>(parameters)) + " parameters";
}

std::string BenchRun::threads_text() const {
  return counted(threads, "thread") + " each" + device_text();
}

std::string BenchRun::device_text() const {
  return device == "cpu" ? "" : ", on " + device;
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

}  // namespace ringside::cli
