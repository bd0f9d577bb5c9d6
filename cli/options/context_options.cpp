#include "cli/options/context_options.hpp"

#include <algorithm>

#include "cli/options/option_checks.hpp"
#include "cli/options/options.hpp"

namespace ringside::cli {

using context_parallel::exchange_names;
using context_parallel::order_names;

void ContextArguments::add_to(const Options& option) {
  option("--context NAME", exchange,
         "How cp ranks attend to each other's tokens: all_gather of keys and values, ring of "
         "exchanges while they compute, or ulysses, all-to-all from tokens to heads [ring; on a "
         "GPU all_gather]",
         one_of(exchange_names()));
  option(
      "--token-order NAME", order,
      "Which tokens a cp rank has: contiguous, or zigzag, an early and a late piece, so that all "
      "compute equally much; `ringside step context` shows it [zigzag]",
      one_of(order_names()));
}

context_parallel::ContextOptions ContextArguments::options() const {
  const auto index = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) - names.begin();
  };
  return {static_cast<context_parallel::Exchange>(index(exchange_names(), exchange)),
          static_cast<context_parallel::TokenOrder>(index(order_names(), order))};
}

}  // namespace ringside::cli
