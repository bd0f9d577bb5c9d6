#include "cli/options/context_options.hpp"

#include <algorithm>

#include "cli/options/options.hpp"
#include "cli/options/training_options.hpp"

namespace ringside::cli {

using context_parallel::exchange_names;
using context_parallel::order_names;

void ContextArguments::add_to(const Options& option) {
  add_training_option(option, "--context", exchange);
  add_training_option(option, "--token-order", order);
}

context_parallel::ContextOptions ContextArguments::options() const {
  const auto index = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) - names.begin();
  };
  return {static_cast<context_parallel::Exchange>(index(exchange_names(), exchange)),
          static_cast<context_parallel::TokenOrder>(index(order_names(), order))};
}

}  // namespace ringside::cli
