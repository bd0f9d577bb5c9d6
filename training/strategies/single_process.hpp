// SingleProcess: the parallel strategy of a run with one rank. It communicates nothing.
#pragma once

#include "training/strategies/parallel_strategy.hpp"

namespace ringside::training {

class SingleProcess final : public ParallelStrategy {
 public:
  int data_rank() const override { return 0; }
  int data_ranks() const override { return 1; }
  void prepare(autograd::Module&) override {}
  void finish_gradients() override {}
  double average(double value) override { return value; }
  double communication_seconds() const override { return 0; }
};

}  // namespace ringside::training
