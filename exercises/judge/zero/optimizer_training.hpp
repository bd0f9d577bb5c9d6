// What the judges of sharded optimizers share: parameters and gradients of random numbers, which
// need no model, and a training with the student's optimizer or with a single AdamW.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/optim/optimizer.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {

// Nine lengths between 1 and 40.
std::vector<int> random_sizes(std::uint64_t seed);

// Parameters p0, p1, ... of these lengths, the same on every rank; but each rank allocates them in
// another order, so that their addresses tell nothing.
std::vector<autograd::NamedTensor> make_parameters(const std::vector<int>& sizes,
                                                   std::uint64_t seed, int rank);

// The gradients of a step: those of `rank`, or for -1 the mean, which all ranks hold.
void set_gradients(const std::vector<autograd::NamedTensor>& parameters, std::uint64_t seed,
                   int step, int rank = -1);

// {"p0": [...], ...}
Json values_of(const std::vector<autograd::NamedTensor>& parameters);

// The whole program of a case, with the student's optimizer or with a single AdamW: parameters of
// `sizes`; from `late` on they join in a second group after step 1; the rate changes before step 3.
struct OptimizerPlan {
  std::vector<int> sizes;
  int steps = 10;
  std::size_t late = 1000;
  bool change_rate = false;
  bool own_gradients = false;  // each rank has others; `rank` says whose a single process takes
};

using MakeOptimizer =
    std::function<std::unique_ptr<autograd::Optimizer>(std::vector<autograd::ParameterGroup>)>;
std::unique_ptr<autograd::Optimizer> make_adamw(std::vector<autograd::ParameterGroup> groups);

// The values before step 0, and after each step.
Json train(const OptimizerPlan& plan, std::uint64_t seed, int rank, int gradients_of,
           const MakeOptimizer& make);

// The first difference of two such trainings by more than `tolerance`: "rank 1, step 2: p5[0] is
// ...". "" if there is none.
std::string difference(const Json& seen, const Json& expected, int rank, double tolerance = 0);

// Whether every rank had the values of a single AdamW after each step of the plan: its bits, where
// no tolerance is given.
Verdict judge_like_single(const Run& run, const OptimizerPlan& plan, double tolerance = 0);

// Whether it had them after the last step: how CS336's test judges. It shows what that lets pass.
Verdict judge_last_weights_only(const Run& run, const OptimizerPlan& plan);

// The bytes of optimizer state after each of two steps with parameters of very different sizes; and
// whether each rank keeps at most 1/p of them, and those of one parameter.
Json ledger_after_two_steps(World& world, const MakeOptimizer& make);
Verdict judge_ledger(const Run& run);
// With parameters of one size, in torch alone.
Verdict judge_ledger_of_even_parameters(const Run& run);

// The bytes that rank `rank` sends when `root` broadcasts fp32 numbers through the binomial tree.
std::uint64_t broadcast_bytes(int floats, int ranks, int rank, int root);

}  // namespace ringside::exercises
