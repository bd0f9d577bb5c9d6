// Data parallelism by hand: each rank has the whole model and a part of the batch. After backward
// the ranks average their gradients, so they all take the same step.
//
//     ringside launch -n 4 -- build/release/bin/data_parallelism
//     gdb --args build/release/bin/data_parallelism --threads
#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/optim/sgd.hpp"
#include "collectives/ranks/run_ranks.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::collectives;

constexpr std::int64_t features = 32, hidden = 128, rows_per_rank = 16;
constexpr int steps = 3;

// The numbers depend on the names only, so all ranks begin with the same parameters.
struct Mlp : Module {
  Linear up{features, hidden, true, {1, "up"}}, down{hidden, features, true, {1, "down"}};
  Mlp() { register_module("up", up), register_module("down", down); }
  Tensor forward(const Tensor& x) const { return down.forward(gelu(up.forward(x))); }
};

// The whole batch of all ranks.
Tensor batch(const char* name, const ProcessGroup& group) {
  const Tensor rows = Tensor::empty({rows_per_rank * group.size(), features});
  fill_normal(rows, 0, 1, {1, name});
  return rows;
}

// All that data parallelism adds to a step. Every rank's loss is a mean over as many rows, so the
// mean of the gradients is the gradient of the mean over all rows.
void average_gradients(const Mlp& model, ProcessGroup& group) {
  for (const auto& [name, parameter] : model.named_parameters())
    group.all_reduce(parameter.grad().values<float>(), ReduceOp::avg, name);
}

// One step on these rows, by all ranks together or, without a group, by one process.
double train_step(const Mlp& model, SGD& optimizer, const Tensor& x, const Tensor& y,
                  ProcessGroup* group) {
  const Tensor loss = mse_loss(model.forward(x), y);
  backward(loss);
  if (group) average_gradients(model, *group);
  optimizer.step();
  optimizer.zero_grad();
  return loss.item();
}

double sum_of_parameters(const Mlp& model) {
  double sum = 0;
  for (const Tensor& parameter : model.parameters())
    for (const float x : parameter.values<float>()) sum += x;
  return sum;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i)
    largest = std::max(largest, std::abs(double{a.data<float>()[i]} - b.data<float>()[i]));
  return largest;
}

int main(int count, char** arguments) {
  return run_ranks(count, arguments, [](ProcessGroup& group, const RankPrinter& print) {
    const Tensor x = batch("x", group), y = batch("y", group);
    const std::int64_t first = group.rank() * rows_per_rank;
    const Tensor own_x = x.narrow(0, first, rows_per_rank),
                 own_y = y.narrow(0, first, rows_per_rank);

    const Mlp model, alone;  // `alone` is trained by one process, on the whole batch
    SGD optimizer({{model.named_parameters(), 0.1}}),
        its_optimizer({{alone.named_parameters(), 0.1}});
    for (int step = 0; step < steps; ++step) {
      const double loss = train_step(model, optimizer, own_x, own_y, &group);
      const double its_loss = train_step(alone, its_optimizer, x, y, nullptr);
      print("step {}  rank {}  loss {:.6f}  sum of parameters {:.9f}\n", step, group.rank(), loss,
            sum_of_parameters(model));
      if (group.rank() == 0)
        fmt::print("step {}  one process, the whole batch: loss {:.6f}\n", step, its_loss);
    }
    if (group.rank() > 0) return;
    const auto ours = model.named_parameters(), theirs = alone.named_parameters();
    for (std::size_t i = 0; i < ours.size(); ++i)
      fmt::print("{:<12} largest difference from one process {:.1e}\n", ours[i].name,
                 largest_difference(ours[i].tensor, theirs[i].tensor));
  });
}
