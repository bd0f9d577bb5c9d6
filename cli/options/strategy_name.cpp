#include "cli/options/strategy_name.hpp"

#include <utility>

#include "base/error.hpp"
#include "cli/options/option_checks.hpp"
#include "training/strategies/parallel_strategies.hpp"

namespace ringside::cli {

Check strategy_name(std::vector<std::string> names,
                    std::map<std::string, std::string> also_called) {
  const auto lossy = training::lossy_strategy_names();
  names.insert(names.end(), lossy.begin(), lossy.end());
  const auto known = one_of(std::move(names), std::move(also_called));
  return [known](const std::string& text) -> std::string {
    if (training::is_strategy_library(text)) return "";
    if (!training::is_lossy(text)) return known(text);
    try {
      training::find_strategy(text);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
}

}  // namespace ringside::cli
