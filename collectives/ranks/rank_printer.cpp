#include "collectives/ranks/rank_printer.hpp"

#include <cstdio>

#include <fmt/ranges.h>

#include "collectives/calls/values_of_all_ranks.hpp"

namespace ringside::collectives {

void RankPrinter::print(std::string text) const {
  if (!as_it_comes_) {
    const auto texts = texts_of_all_ranks(group_, text, "what the ranks print");
    text = group_.rank() == 0 ? fmt::format("{}", fmt::join(texts, "")) : "";
  }
  // One call, so that the lines of threads do not mix; flushed, so that those of processes do not
  // wait in a buffer until the rank ends.
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace ringside::collectives
