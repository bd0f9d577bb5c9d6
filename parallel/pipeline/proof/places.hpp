// Where each action of a schedule stands: a table, so that every check below is one pass.
#pragma once

#include <cstddef>
#include <vector>

#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

class Places {
 public:
  static constexpr int nowhere = -1;

  // The stages and micro-batches of all actions must exist.
  explicit Places(const Schedule& schedule)
      : micro_batches_(schedule.micro_batches),
        table_(static_cast<std::size_t>(kinds) * schedule.stages() * (micro_batches_ + 1),
               nowhere) {
    for (const std::vector<Action>& actions : schedule.actions) {
      for (std::size_t i = 0; i < actions.size(); ++i) {
        int& place = table_[index(actions[i])];
        if (place == nowhere) place = static_cast<int>(i);
      }
    }
  }

  // Its index in the actions of its rank, the first one if it occurs more than once.
  int of(const Action& action) const { return table_[index(action)]; }
  bool has(const Action& action) const { return of(action) != nowhere; }

 private:
  static constexpr int kinds = static_cast<int>(Kind::reduce_gradients) + 1;

  // Micro-batch -1 is the first column.
  std::size_t index(const Action& action) const {
    const std::size_t row =
        static_cast<std::size_t>(action.stage) * kinds + static_cast<std::size_t>(action.kind);
    return row * (micro_batches_ + 1) + (action.micro_batch + 1);
  }

  int micro_batches_;
  std::vector<int> table_;
};

}  // namespace ringside::pipeline_parallel
