// Which algorithm a call takes: the one place where that is decided.
//
// What is forced comes first. Otherwise it is the cheapest by the cost model (cost_model.hpp), from
// what messages and sums cost on this machine (calibration.hpp): for a handful of bytes an
// algorithm of few messages, for many bytes one that moves few bytes.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/algorithms/catalogue.hpp"
#include "collectives/data_type.hpp"
#include "collectives/selection/cost_model.hpp"

namespace ringside::collectives {

class AlgorithmSelection {
 public:
  AlgorithmSelection() = default;

  // With some forced: "all_reduce=halving_doubling,broadcast=chain". The same on all ranks, or the
  // first call says that they disagree. Throws Error where a name is not in the catalogue.
  explicit AlgorithmSelection(std::string_view forced);

  // What things cost where the calls run. Must be the same on all ranks, since each chooses for
  // itself: a ProcessGroup sees to it.
  void set_costs(const MachineCosts& costs);
  const std::optional<MachineCosts>& costs() const { return costs_; }

  // For `count` elements of the whole buffer among `size` ranks: what is forced, otherwise the
  // cheapest, otherwise, where nothing is known of costs, the catalogue's default. Of several that
  // cost the same but for a few per cent, the first in the catalogue. Sizes between two powers of
  // two are alike; the first call of such a class walks the schedules, all others look up what was
  // found. One thread at a time.
  const Algorithm& choose(Collective collective, std::size_t count, DataType type, int size) const;

 private:
  struct Kind {
    Collective collective;
    int size;
    int size_class;  // of the buffer: 0 for no bytes, k for 2^(k-1) to 2^k - 1
    auto operator<=>(const Kind&) const = default;
  };
  const Algorithm& cheapest(const Kind& kind) const;

  std::map<Collective, const Algorithm*> forced_;
  std::optional<MachineCosts> costs_;
  mutable std::map<Kind, const Algorithm*> found_;
};

}  // namespace ringside::collectives
