// Chooses the algorithm of a call.
//
// A forced algorithm comes first. Otherwise the cost model (cost_model.hpp) finds the cheapest,
// from the costs of messages and sums (calibration.hpp): an algorithm with few messages for a few
// bytes, one that moves few bytes for many.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "collectives/algorithms/catalogue.hpp"
#include "collectives/data_type.hpp"
#include "collectives/selection/cost_model.hpp"

namespace ringside::collectives {

class AlgorithmSelection {
 public:
  AlgorithmSelection() = default;

  // Forces some algorithms: "all_reduce=halving_doubling,broadcast=chain", or those of files that
  // load_algorithms() has loaded: "my.json". All ranks must force the same, otherwise the first
  // call that differs throws. Throws Error if a name is not in the catalogue, or a file is not
  // loaded.
  explicit AlgorithmSelection(std::string_view forced);

  // RINGSIDE_ORDER=fixed: forces the algorithms that add by one tree of the ranks, alike for every
  // element, length and collective (doubling/halving_doubling.hpp). Throws Error if others are
  // forced.
  void fix_order();

  // Throws Error if a file that is forced has no schedules for so many ranks. A job checks its own
  // size; a sub-group of another size selects as if that file were not there.
  void require_files_for(int size) const;

  // The costs on the machine that runs the calls. They must be the same on all ranks, because each
  // rank chooses for itself. A group whose options have none takes those of its Connections.
  void set_costs(const MachineCosts& costs);
  const std::optional<MachineCosts>& costs() const { return costs_; }

  // The algorithm for `count` elements of the whole buffer on `size` ranks: the forced one,
  // otherwise the cheapest, or without costs the default of the catalogue. If several cost the same
  // within a few per cent, it is the first of them in the catalogue. All sizes between two powers
  // of two get the same algorithm: the first such call walks the schedules, later calls look up the
  // result. An all-to-all of `unequal` blocks gets the forced one or the default, which sends each
  // block directly: no rank knows how long a block of others is. One thread at a time.
  const Algorithm& choose(Collective collective, std::size_t count, DataType type, int size,
                          bool unequal = false) const;

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
