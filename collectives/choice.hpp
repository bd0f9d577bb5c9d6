// Which algorithm a call takes: the one place where that is decided.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "collectives/algorithms/catalogue.hpp"
#include "collectives/data_type.hpp"

namespace ringside::collectives {

class AlgorithmChoice {
 public:
  AlgorithmChoice() = default;

  // With some forced: "all_reduce=halving_doubling,broadcast=chain". The same on all ranks, or the first call says that they
  // disagree. Throws Error where a name is not in the catalogue.
  explicit AlgorithmChoice(std::string_view forced);

  // For `count` elements of the whole buffer among `size` ranks: what is forced, otherwise the catalogue's default.
  const Algorithm& choose(Collective collective, std::size_t count, DataType type, int size) const;

 private:
  std::map<Collective, const Algorithm*> forced_;
};

}  // namespace ringside::collectives
