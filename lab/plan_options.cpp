#include "lab/plan_options.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/error.hpp"
#include "cli/options/option_checks.hpp"
#include "cli/options/options.hpp"

namespace ringside::cli {

using namespace planning;

void PlanOptions::add_to(const Options& option) {
  const auto positive = in_range(1, 1e9);
  option("--model MODEL", model, "A name, or the path of a config.json");
  option("--mesh AXES", mesh, "The devices, as in pp=2,dp=4,tp=8 [one device]");
  option("--schedule NAME", given.schedule,
         fmt::format("{}; or csv:FILE, see ringside step pipeline [1f1b]",
                     fmt::join(schedule_names(), ", ")));
  option("--chunks V", given.chunks,
         "Chunks of a stage, for interleaved, looped_bfs and interleaved_zb [1]", positive);
  option("--micro-batch N", given.micro_batch, "Sequences of a micro-batch [1]", positive);
  option("--micro-batches N", given.micro_batches,
         "Micro-batches of a data-parallel rank in one step [1]", positive);
  option("--batch N", batch, "Sequences of a step over all ranks; instead of --micro-batches",
         positive);
  option("--sequence N", given.sequence, "Tokens of a sequence [the model's longest]", positive);
  option("--zero STAGE", given.zero,
         "Stage of ZeRO over fsdp, or dp in a mesh without it, 0 to 3 [0; with fsdp 3]",
         in_range(0, 3));
  option("--recompute NAME", recompute,
         "Activations to compute again: none, selective, full, every=K for groups of K blocks, or "
         "nested=K1,K2 for groups within groups [none]",
         parsed_by([](const std::string& text) { recomputation_from(text); }));
  option.flag("--sequence-parallel", given.sequence_parallel,
              "Divide what tensor parallel leaves whole by the sequence");
  option.flag("--fused-gradients", given.fused_gradients,
              "Products add to the gradients of earlier micro-batches, with no other kernel");
  option("--imbalance FACTOR", given.imbalance,
         "Of experts on ep ranks: tokens of the busiest rank, relative to the mean [1]",
         in_range(1.0, 1e3));
  option("--overlap SHARE", overlap,
         "Share of the communication along dp, fsdp and cp that can run while a device computes "
         "[the machine's, mostly 1]",
         in_range(0.0, 1.0));
  context.add_to(option);
  for (const auto& [name, value, what] : {std::tuple("--parameters", &parameters, "parameters"),
                                          std::tuple("--gradients", &gradients, "gradients"),
                                          std::tuple("--activations", &activations, "activations")})
    option(fmt::format("{} TYPE", name), *value,
           fmt::format("Type of {}: bf16 or fp32 [bf16; fp32 for Ringside's sizes]", what),
           one_of({"bf16", "fp16", "fp32"}));
}

Machine PlanOptions::machine(const std::string& name) const {
  Machine machine = find_machine(name);
  machine.overlap = overlap.value_or(machine.overlap);
  return machine;
}

Types PlanOptions::types() const {
  const auto own = transformer::config_names();
  const bool is_own = std::ranges::find(own, model) != own.end();
  const auto bytes = [&](const std::string& name) {
    return (name.empty() ? is_own : name == "fp32") ? 4.0 : 2.0;
  };
  return {.parameters = bytes(parameters),
          .gradients = bytes(gradients),
          .activations = bytes(activations)};
}

Plan PlanOptions::plan(const Model& of) const {
  Plan plan = given;
  plan.mesh = planned_mesh(mesh);
  if (plan.sequence == 0) plan.sequence = std::max<std::int64_t>(of.sequence, 1);
  plan.recompute = recomputation_from(recompute);
  plan.types = types();
  plan.context = context.options();
  if (batch > 0) {
    const std::int64_t at_once = plan.mesh.data_ranks() * plan.micro_batch;
    require(batch % at_once == 0,
            "a batch of {} sequences does not divide into micro-batches of {} on {} data-parallel "
            "ranks",
            batch, plan.micro_batch, plan.mesh.data_ranks());
    plan.micro_batches = batch / at_once;
  }
  return plan;
}

}  // namespace ringside::cli
