#include "bench/training/step_options.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "autograd/kernels/threads/parallel.hpp"
#include "cli/pictures/numbers.hpp"
#include "collectives/transport/link.hpp"

namespace ringside::cli {

training::Plan StepOptions::plan(int rank_count, const std::string& strategy) const {
  training::Plan plan;
  plan.config = transformer::named_config(model);
  plan.config.sequence = std::max(plan.config.sequence, sequence);
  plan.dtype = autograd::dtype_named(dtype);
  plan.device = device_from(device, plan.dtype);
  plan.options.batch = batch * rank_count;
  plan.options.sequence = sequence;
  plan.strategy = strategy;
  return plan;
}

BenchRun describe_run(const StepOptions& options, const collectives::ProcessGroup* group) {
  const std::int64_t parameters = parameter_count(transformer::named_config(options.model));
  const int threads = autograd::threads();
  const auto emulated = collectives::link_from_environment();
  const std::string link = emulated ? to_text(*emulated) : "", device = options.device.name,
                    behind = emulated ? ", each behind a link of " + link : "",
                    on = device == "cpu" ? "" : ", on " + device, each = group ? " each" : "";
  std::string where;
  Facts facts{{"model", options.model}, {"parameters", parameters},
              {"batch", options.batch}, {"sequence", options.sequence},
              {"threads", threads},     {"type", options.dtype},
              {"device", device}};
  if (group) {
    const std::string backend = group->backend_name();
    where = fmt::format(" on {} over {}{}", counted(group->size(), "rank"), backend, behind);
    facts.insert(facts.end(), {{"ranks", group->size()},
                               {"backend", backend},
                               {"link", emulated ? Cell(link) : Cell(nullptr)}});
  }
  return {fmt::format("{}: {} parameters{}; batch {} x {}{}, {}, AdamW, {}{}{}", options.model,
                      with_unit(static_cast<double>(parameters)), where, options.batch,
                      options.sequence, each, options.dtype, counted(threads, "thread"), each, on),
          facts};
}

}  // namespace ringside::cli
