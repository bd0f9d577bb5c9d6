// Summary: what a run came to.
#pragma once

#include <cstdint>
#include <vector>

#include "training/trainer.hpp"

namespace ringside::training {

struct Summary {
  // For the steps after `first`, up to and including `last`.
  Summary(std::int64_t first, std::int64_t last);

  void add(const StepReport& report);
  double tokens_per_second() const { return tokens / seconds; }

  std::int64_t first, last;
  // Means over so many of the first and of the last steps, because the loss of a single step is
  // noisy. In bits per byte.
  std::int64_t at_each_end;
  double first_loss = 0, last_loss = 0;
  double seconds = 0, tokens = 0;
  double communication_seconds = 0;
  std::vector<SecondsAlong> communication_by_axis;
};

}  // namespace ringside::training
