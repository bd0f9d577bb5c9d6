// The first failure of a backend: afterwards the backend is of no further use, and every later call
// throws it again.
#pragma once

#include <optional>

#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

class FirstFailure {
 public:
  explicit operator bool() const { return failure_.has_value(); }

  void throw_if_any() const {
    if (failure_) throw *failure_;
  }

  // Keeps `failure` unless there is an earlier one. Returns the first.
  const RankFailure& keep(const RankFailure& failure) {
    if (!failure_) failure_ = failure;
    return *failure_;
  }

 private:
  std::optional<RankFailure> failure_;
};

}  // namespace ringside::collectives
