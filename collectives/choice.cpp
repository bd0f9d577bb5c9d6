#include "collectives/choice.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ringside::collectives {

AlgorithmChoice::AlgorithmChoice(std::string_view forced) {
  while (!forced.empty()) {
    const std::string_view entry = forced.substr(0, forced.find(','));
    forced.remove_prefix(std::min(forced.size(), entry.size() + 1));
    const std::size_t equals = entry.find('=');
    require(equals != std::string_view::npos && equals + 1 < entry.size(),
            "'{}' does not name an algorithm: write collective=algorithm, such as all_reduce=ring, with commas in between", entry);
    const Collective collective = collective_named(entry.substr(0, equals));
    forced_[collective] = &find_algorithm(collective, entry.substr(equals + 1));
  }
}

const Algorithm& AlgorithmChoice::choose(Collective collective, std::size_t /*count*/, DataType /*type*/, int /*size*/) const {
  const auto found = forced_.find(collective);
  return found != forced_.end() ? *found->second : find_algorithm(collective);
}

}  // namespace ringside::collectives
