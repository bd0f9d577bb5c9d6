// Context parallel as a picture: which rank has which tokens, which queries meet which keys in
// which step of the ring, and what is masked.
#pragma once

#include <string>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/table.hpp"
#include "parallel/context/order.hpp"

namespace ringside::cli {

struct ContextPicture {
  int ranks = 4;
  context_parallel::TokenOrder order = context_parallel::TokenOrder::contiguous;
  std::int64_t tokens = 0;  // of a sequence; piece_count() divides it
};

// For each piece of queries (a line) and of keys (a column): the step of the ring that computes the
// pair, with a backslash if half of it is masked, or a point if all is. Lines of at most 80 columns
// for at most 8 ranks.
std::string blocks_text(const ContextPicture& picture);

// A row for each rank: its pieces, the ranks whose keys it meets, and the pairs of a query and a
// key that it multiplies, also relative to rank 0.
Table ranks_of(const ContextPicture& picture);

// The blocks, coloured by rank and numbered by step.
std::string svg_of(const ContextPicture& picture);

Json json_of(const ContextPicture& picture);

}  // namespace ringside::cli
