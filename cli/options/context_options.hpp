// --context and --token-order: how the ranks of the axis cp divide sequences.
#pragma once

#include <string>

#include "cli/options/cli11_names.hpp"
#include "parallel/context/order.hpp"

namespace ringside::cli {

struct ContextArguments {
  std::string exchange = "ring", order = "zigzag";

  void add_to(const Options& option);
  context_parallel::ContextOptions options() const;
};

}  // namespace ringside::cli
