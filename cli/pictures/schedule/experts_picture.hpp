// Expert parallel as text: the experts that a router chooses for the tokens of each rank, and the
// rows that ranks exchange. The router's logits are random numbers; what follows from them is
// computed by the functions that training calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/table.hpp"

namespace ringside::cli {

struct ExpertsPicture {
  int ranks = 4;
  std::int64_t experts = 8, per_token = 2, tokens = 8;  // tokens of each rank
  double skew = 0;  // the mean logit falls by 4 skew from the first expert to the last
  std::uint64_t seed = 0;
};

class RoutedTokens {
 public:
  // Throws Error if the ranks do not divide the experts, or a token cannot choose so many.
  explicit RoutedTokens(const ExpertsPicture& picture);

  // The choices of every token, the matrix of counts, the rows exchanged and computed. At most 80
  // columns wide, as far as the matrix allows.
  std::string text() const;
  Json json() const;

 private:
  std::int64_t computed(int rank) const;  // rows of the experts of a rank
  Table table() const;

  ExpertsPicture picture_;
  std::vector<std::vector<std::int32_t>> chosen_;  // [rank][token * per_token]
  std::vector<std::vector<std::int64_t>> counts_;  // [rank][expert]
};

}  // namespace ringside::cli
