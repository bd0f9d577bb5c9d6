// The options that describe a plan: those of `ringside account` and `ringside simulate`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/options/cli11_names.hpp"
#include "cli/options/context_options.hpp"
#include "planning/machine.hpp"
#include "planning/plan.hpp"

namespace ringside::cli {

struct PlanOptions {
  std::string model, mesh, recompute = "none";
  std::string parameters, gradients, activations;  // types; empty: the model's default
  std::int64_t batch = 0;                          // 0: as the micro-batches make it
  planning::Plan given{.sequence = 0};             // what options fill directly
  std::optional<double> overlap;                   // none: the machine's
  ContextArguments context;

  void add_to(const Options& option);

  // Ringside's own sizes train in fp32; published models in 16 bits with fp32 masters.
  planning::Types types() const;
  // Throws Error for a wrong mesh or batch.
  planning::Plan plan(const planning::Model& model) const;
  // A name or a file; with --overlap, if it was given. Throws Error as find_machine().
  planning::Machine machine(const std::string& name) const;
};

}  // namespace ringside::cli
