// What the ranks of a program print, in the order of ranks.
//
//     const RankPrinter print(group);
//     print("rank {} holds {}\n", group.rank(), numbers);
//
// Processes, and threads, reach the same line at different times, and nothing orders what they
// write. So rank 0 prints for all of them: it gathers the texts, which is a collective. Every rank
// must call it, and what is printed does not show who came first.
//
// As it comes, each rank prints its own text at once, without a call. The order then differs from
// run to run, and shows when each rank came to the line.
#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

#include "collectives/process_group.hpp"

namespace ringside::collectives {

class RankPrinter {
 public:
  // `group` must outlive this object.
  explicit RankPrinter(ProcessGroup& group, bool as_it_comes = false)
      : group_(group), as_it_comes_(as_it_comes) {}

  // Prints on stdout. The text may be empty on some ranks, and ends its own lines.
  template <class... Values>
  void operator()(fmt::format_string<Values...> text, Values&&... values) const {
    print(fmt::format(text, std::forward<Values>(values)...));
  }

  bool as_it_comes() const { return as_it_comes_; }

 private:
  void print(std::string text) const;

  ProcessGroup& group_;
  bool as_it_comes_;
};

}  // namespace ringside::collectives
