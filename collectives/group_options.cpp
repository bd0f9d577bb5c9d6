#include "collectives/group_options.hpp"

#include "base/environment.hpp"
#include "base/error.hpp"

namespace ringside::collectives {

GroupOptions group_options_from_environment() {
  GroupOptions options;
  if (const auto seconds = integer_environment("RINGSIDE_TIMEOUT", 1, 1000000))
    options.executor.timeout = Seconds(*seconds);
  if (const auto seconds = integer_environment("RINGSIDE_WARN_AFTER", 0, 1000000))
    options.executor.warn_after = Seconds(*seconds);
  if (const auto bytes = integer_environment("RINGSIDE_SLICE_BYTES", 64, 1 << 30))
    options.executor.slice_bytes = static_cast<std::size_t>(*bytes);
  if (const auto forced = environment("RINGSIDE_ALGORITHM"))
    options.algorithms = AlgorithmSelection(*forced);
  if (order_is_fixed()) options.algorithms.fix_order();
  options.link = link_from_environment();
  return options;
}

bool order_is_fixed() {
  const auto order = environment("RINGSIDE_ORDER");
  require(
      !order || *order == "fixed",
      "RINGSIDE_ORDER is '{}', but the only order to ask for is fixed; without it each call adds "
      "as its algorithm does",
      order.value_or(""));
  return order.has_value();
}

}  // namespace ringside::collectives
