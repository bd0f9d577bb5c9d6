// The error that ends a call when another rank has failed, and the one that ends a backend.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace ringside::collectives {

// A rank of the group has died or has given up, or does not answer. `rank` is the rank to blame, as
// far as it is known. `cause` is the sentence of the rank that noticed the failure first; what()
// may add to it what one rank tells its own user.
class RankFailure : public Error {
 public:
  RankFailure(int blamed, const std::string& what) : RankFailure(blamed, what, what) {}
  RankFailure(int blamed, const std::string& what, std::string first_cause)
      : Error(what), rank(blamed), cause(std::move(first_cause)) {}
  int rank;
  std::string cause;
  bool heard_from_another() const { return cause != what(); }
};

// The failure that ended a backend: the first one counts, and every later call throws it again.
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
