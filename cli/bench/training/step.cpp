#include "cli/bench/training/step.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/random.hpp"
#include "cli/launcher/ranks.hpp"

namespace ringside::cli {

void BenchStepOptions::add_to(CLI::App& command) {
  command
      .add_option("--model", model,
                  fmt::format("The model's size: {}", fmt::join(transformer::config_names(), ", ")))
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--batch", batch, "Sequences per step and rank")
      ->type_name("N")
      ->check(at_least_one("sequence"))
      ->capture_default_str();
  command.add_option("--sequence", sequence, "Tokens per sequence")
      ->type_name("N")
      ->check(at_least_one("token"))
      ->capture_default_str();
  command.add_option("--steps", steps, "Number of measured steps")
      ->type_name("N")
      ->check(at_least_one("step"))
      ->capture_default_str();
  command
      .add_option(
          "--json", json,
          "Write the figures to this file; - writes them to standard output and the table to "
          "standard error")
      ->type_name("FILE");
}

transformer::Config BenchStepOptions::config() const {
  transformer::Config config = transformer::named_config(model);
  config.sequence = std::max(config.sequence, sequence);
  return config;
}

autograd::Tensor BenchStepOptions::tokens(std::uint64_t stream) const {
  const auto vocabulary = static_cast<std::uint64_t>(config().vocabulary);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(batch * sequence));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(random_below(vocabulary, 1, stream, i));
  return autograd::Tensor::from(ids, {batch, sequence});
}

}  // namespace ringside::cli
