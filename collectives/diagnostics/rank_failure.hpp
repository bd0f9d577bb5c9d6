// The error that ends a call when another rank has failed.
#pragma once

#include <string>
#include <utility>

#include "base/error.hpp"

namespace ringside::collectives {

// A rank has died or has given up, or does not answer. `rank` is the rank of the job to blame,
// which may be in another group, or -1 if none is known. `cause` is the sentence of the rank that
// noticed the failure first; what() may add to it what one rank tells its own user.
class RankFailure : public Error {
 public:
  RankFailure(int blamed, const std::string& what) : RankFailure(blamed, what, what) {}
  RankFailure(int blamed, const std::string& what, std::string first_cause)
      : Error(what), rank(blamed), cause(std::move(first_cause)) {}
  int rank;
  std::string cause;
  bool heard_from_another() const { return cause != what(); }
};

}  // namespace ringside::collectives
