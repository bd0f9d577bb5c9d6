// The failure that ended a backend: the first one counts, and every later call throws it again.
#pragma once

#include <optional>
#include <utility>

#include "collectives/diagnostics/rank_failure.hpp"

namespace ringside::collectives {

class FirstFailure {
 public:
  explicit operator bool() const { return failure_.has_value(); }
  void throw_if_any() const {
    if (failure_) throw *failure_;
  }

  // Keeps `failure` unless there is one. Returns the one that is kept.
  const RankFailure& keep(RankFailure failure) {
    if (!failure_) failure_ = std::move(failure);
    return *failure_;
  }

 private:
  std::optional<RankFailure> failure_;
};

}  // namespace ringside::collectives
