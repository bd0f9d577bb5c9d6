// Pipeline parallelism by hand: each rank has some of the layers, its stage. The batch goes through
// the stages in micro-batches, so that all ranks have work. Forward sends activations to the next
// rank, backward sends gradients to the previous one.
//
//     ringside launch -n 4 -- build/release/bin/pipeline_parallelism
//     gdb --args build/release/bin/pipeline_parallelism --threads
#include <algorithm>
#include <vector>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"
#include "base/clock.hpp"
#include "collectives/messages.hpp"
#include "collectives/ranks/run_ranks.hpp"
#include "ddp/scoped_work.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::collectives;

constexpr std::int64_t width = 512, rows = 64;  // of a micro-batch
constexpr int micro_batches = 8;

// The stage of a rank, here one layer: its weight.
Tensor make_stage(int rank) {
  const Tensor weight = Tensor::empty({width, width}).set_requires_grad(true);
  fill_normal(weight.detach(), 0, 0.1, {1, fmt::format("stage {}", rank)});
  return weight;
}

Tensor drawn(const char* name, int micro_batch) {
  const Tensor numbers = Tensor::empty({rows, width});
  fill_normal(numbers, 0, 1, {1, name}, micro_batch * rows * width);
  return numbers;
}

// ---- One step, one call after the other: forward, as in the lecture, and backward.

Tensor output_of(const Tensor& weight, const Tensor& x) {
  return gelu(linear(x, weight));
}

// x and targets are the whole batch in micro-batches, of equal shapes: rank 0 reads x, the last
// rank targets. The loss is the mean over the batch. Adds the gradient of this rank's weight.
//
// The gradient of a receive is a send, to where the data came from. Gradients of the weights add up
// over the micro-batches, in the order in which one process would take them.
void training_step(const Tensor& weight, const std::vector<Tensor>& x,
                   const std::vector<Tensor>& targets, ProcessGroup& group) {
  const int rank = group.rank(), last = group.size() - 1;
  std::vector<Tensor> inputs, outputs;  // what backward needs: the inputs are leaves
  for (const Tensor& of_batch : x) {
    Tensor input = rank == 0 ? of_batch.detach() : empty_like(of_batch);
    if (rank > 0) group.recv(input.values<float>(), rank - 1);
    inputs.push_back(input.set_requires_grad(rank > 0));
    outputs.push_back(output_of(weight, inputs.back()));
    if (rank < last) group.send(outputs.back().values<float>(), rank + 1);
  }
  for (std::size_t m = 0; m < x.size(); ++m) {
    if (rank == last) {
      backward(scale(mse_loss(outputs[m], targets[m]), 1.0 / static_cast<double>(x.size())));
    } else {
      const Tensor dy = empty_like(outputs[m]);
      group.recv(dy.values<float>(), rank + 1);
      backward(outputs[m], dy);
    }
    if (rank > 0) group.send(inputs[m].grad().values<float>(), rank - 1);
  }
}

// ---- The same with overlap: all receives are posted before the first computation, and no send is
// waited for before the end. So messages travel while the rank computes. The tag of a message is
// its micro-batch; activations and gradients come from different ranks.

Tensor loss_of(const Tensor& y, int micro_batch) {
  return scale(mse_loss(y, drawn("target", micro_batch)), 1.0 / micro_batches);
}

void overlapped(const Tensor& stage, int rank, Messages& messages) {
  const int last = messages.size() - 1;
  std::vector<Tensor> x, y, dy;
  std::vector<ddp::ScopedWork> x_arrives, dy_arrives, leaving;  // destroyed before their tensors
  for (int m = 0; m < micro_batches; ++m) {
    x.push_back(rank == 0 ? drawn("x", m) : Tensor::empty({rows, width}));
    dy.push_back(rank == last ? Tensor() : Tensor::empty({rows, width}));
    if (rank > 0) x_arrives.emplace_back(messages.recv(x[m].values<float>(), rank - 1, m));
    if (rank < last) dy_arrives.emplace_back(messages.recv(dy[m].values<float>(), rank + 1, m));
  }
  for (int m = 0; m < micro_batches; ++m) {
    if (rank > 0) x_arrives[m].wait();
    y.push_back(output_of(stage, x[m].set_requires_grad(true)));
    if (rank < last) leaving.emplace_back(messages.send(y[m].values<float>(), rank + 1, m));
  }
  for (int m = 0; m < micro_batches; ++m) {
    if (rank < last) dy_arrives[m].wait();
    backward(rank < last ? y[m] : loss_of(y[m], m), dy[m]);
    if (rank > 0) leaving.emplace_back(messages.send(x[m].grad().values<float>(), rank - 1, m));
  }
  for (const auto& work : leaving) work.wait();
}

// ---- Both beside one process that takes the same micro-batches

// The gradient of a stage.
Tensor one_process(int stages, int of_stage) {
  std::vector<Tensor> all;
  for (int s = 0; s < stages; ++s) all.push_back(make_stage(s));
  for (int m = 0; m < micro_batches; ++m) {
    Tensor x = drawn("x", m);
    for (const Tensor& stage : all) x = output_of(stage, x);
    backward(loss_of(x, m));
  }
  return all[of_stage].grad();
}

int main(int count, char** arguments) {
  return run_ranks(count, arguments, [](ProcessGroup& group, const RankPrinter& print) {
    const int rank = group.rank();
    const Tensor wanted = one_process(group.size(), rank);
    Messages messages(group);
    const auto measure = [&](const char* name, auto run) {
      const Tensor stage = make_stage(rank);
      group.barrier();
      const auto start = Clock::now();
      run(stage);
      group.barrier();
      print("rank {}  {:<24} {:6.1f} ms, gradient equal to one process: {}\n", rank, name,
            seconds_since(start) * 1e3,
            std::ranges::equal(stage.grad().values<float>(), wanted.values<float>()));
    };
    std::vector<Tensor> x, targets;
    for (int m = 0; m < micro_batches; ++m) {
      x.push_back(drawn("x", m));
      targets.push_back(drawn("target", m));
    }
    measure("one call after the other",
            [&](const Tensor& stage) { training_step(stage, x, targets, group); });
    measure("overlapped", [&](const Tensor& stage) { overlapped(stage, rank, messages); });
  });
}
