// The options of the benches that measure a training step: the model, its batch, and the number of
// steps.
#pragma once

#include <cstdint>
#include <string>

#include "autograd/tensor/tensor.hpp"
#include "cli/cli11_names.hpp"
#include "transformer/config.hpp"

namespace ringside::cli {

struct BenchStepOptions {
  std::string model = "lab";
  std::int64_t batch = 2, sequence = 256;  // of each rank
  int steps = 9;
  std::string json;  // empty: none

  // Declares --model, --batch, --sequence, --steps and --json.
  void add_to(CLI::App& command);

  // The model's configuration, for at least `sequence` tokens. Throws Error if there is no such
  // model.
  transformer::Config config() const;

  // Random tokens [batch, sequence], which depend on `stream` only.
  autograd::Tensor tokens(std::uint64_t stream) const;
};

}  // namespace ringside::cli
