// Tensor parallelism by hand: each rank has the whole batch and a part of every matrix. Two ways to
// divide the matrices, forward and backward, and what each sends.
//
// Activations are [features, batch]: the features of a rank lie together in memory, so that
// collectives need no copy. A layer is y = gelu(W x) or y = W x, with W [out, in].
//
//     ringside launch -n 4 -- build/release/bin/tensor_parallelism
//     gdb --args build/release/bin/tensor_parallelism --threads
#include <algorithm>
#include <cmath>
#include <ranges>
#include <vector>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "collectives/execution/traffic.hpp"
#include "collectives/ranks/run_ranks.hpp"
#include "collectives/selection/algorithm_selection.hpp"
#include "ddp/tensor_collectives.hpp"
#include "parallel/tensor/linear.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::collectives;
using tensor_parallel::part_of;

constexpr std::int64_t batch = 32;

// ---- As in the lecture: all matrices are divided by rows. A layer gives each rank some of the
// outputs, and an all-gather gives all of them to all ranks.

struct Layer {
  Tensor weight;  // this rank's rows of W, [out / n, in]
  bool has_gelu;
  Tensor x, y;  // of the last forward: the whole input [in, batch], this rank's rows of the output
};

Tensor forward_gathered(std::vector<Layer>& layers, Tensor x, ProcessGroup& group) {
  for (Layer& layer : layers) {
    layer.x = x.detach().set_requires_grad(true);
    layer.y = matmul(layer.weight, layer.x);
    if (layer.has_gelu) layer.y = gelu(layer.y);
    x = Tensor::empty({layer.y.size(0) * group.size(), layer.x.size(1)});
    ddp::all_gather(layer.y.detach(), x, group, "activations");
  }
  return x;
}

// dy [out, batch] is the gradient of what forward returned. It is the same on all ranks: each has
// all of y and computed the loss from it. Adds the gradients of this rank's weights, and returns
// this rank's rows of the gradient of the input.
//
// The gradient of an all-gather is a reduce-scatter: every rank used this rank's rows, so their
// gradient is the sum of what all ranks say about them. The last all-gather is the exception: what
// follows it, the loss, is not divided. A sum over ranks would count the loss n times.
Tensor backward_gathered(std::vector<Layer>& layers, const Tensor& dy, ProcessGroup& group) {
  Tensor own_dy = part_of(dy, 0, group);
  for (Layer& layer : layers | std::views::reverse) {
    backward(layer.y, own_dy);  // leaves in layer.x.grad() what this rank says about all of x
    own_dy = Tensor::empty({layer.x.size(0) / group.size(), layer.x.size(1)});
    ddp::reduce_scatter_sum(layer.x.grad(), own_dy, group, "gradient of activations");
  }
  return own_dy;
}

// ---- Megatron's pair: the first matrix is divided by rows, the second by columns. What lies
// between them stays on its rank, and a sum over all ranks gives the output.

struct Pair {
  Tensor up, down;  // this rank's rows of W1, [hidden / n, in]; its columns of W2, [in, hidden / n]
  Tensor x, y;      // of the last forward: the input; this rank's term of the output
};

Tensor forward_pair(Pair& pair, const Tensor& x, ProcessGroup& group) {
  pair.x = x.detach().set_requires_grad(true);
  pair.y = matmul(pair.down, gelu(matmul(pair.up, pair.x)));
  const Tensor y = Tensor::empty(pair.y.shape());
  ddp::all_reduce_sum(pair.y.detach(), y, group, "activations");
  return y;
}

// Returns the whole gradient of the input. Each term of a sum has the gradient of the sum, so dy
// needs no call. dx does: every rank used all of x.
Tensor backward_pair(Pair& pair, const Tensor& dy, ProcessGroup& group) {
  backward(pair.y, dy);
  const Tensor dx = Tensor::empty(pair.x.shape());
  ddp::all_reduce_sum(pair.x.grad(), dx, group, "gradient of activations");
  return dx;
}

// ---- Both beside one process

Tensor drawn(Shape shape, const char* name) {
  Tensor numbers = Tensor::empty(std::move(shape));
  fill_normal(numbers, 0, 0.2, {1, name});
  return numbers.set_requires_grad(true);
}

Tensor gradient_of_loss(Tensor y, const Tensor& target) {
  backward(mse_loss(y.set_requires_grad(true), target));
  return y.grad();
}

// The largest difference between two elements, relative to the largest element.
double difference(const Tensor& a, const Tensor& b) {
  double apart = 0, largest = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    apart = std::max(apart, std::abs(double{a.data<float>()[i]} - b.data<float>()[i]));
    largest = std::max(largest, std::abs(double{b.data<float>()[i]}));
  }
  return apart / largest;
}

int main(int count, char** arguments) {
  return run_ranks(count, arguments, [](ProcessGroup& group, const RankPrinter& print) {
    group.set_algorithms(AlgorithmSelection("all_reduce=ring,reduce_scatter=ring,all_gather=ring"));
    const auto sent = [&] { return group.traffic().payload_bytes_sent; };
    const auto part = [&](const Tensor& whole, int dimension) {
      return part_of(whole, dimension, group).set_requires_grad(true);
    };
    const std::int64_t d = 16 * group.size(), hidden = 4 * d;
    const Tensor x = drawn({d, batch}, "x"), target = drawn({d, batch}, "target").detach();
    const Tensor up = drawn({hidden, d}, "up"), down = drawn({d, hidden}, "down");

    const Tensor y = matmul(down, gelu(matmul(up, x)));  // one process
    backward(mse_loss(y, target));

    std::vector<Layer> layers{{part(up, 0), true, {}, {}}, {part(down, 0), false, {}, {}}};
    const auto start = sent();
    const Tensor y1 = forward_gathered(layers, x, group);
    const Tensor dx1 = backward_gathered(layers, gradient_of_loss(y1, target), group);

    Pair pair{part(up, 0), part(down, 1), {}, {}};
    const auto middle = sent();
    const Tensor y2 = forward_pair(pair, x, group);
    const Tensor dx2 = backward_pair(pair, gradient_of_loss(y2, target), group);

    const auto end = sent();
    print("rank {}  all-gather      sent {:6} bytes, differs from one process by {:.0e}\n",
          group.rank(), middle - start,
          std::max({difference(y1, y), difference(dx1, part(x.grad(), 0)),
                    difference(layers[0].weight.grad(), part(up.grad(), 0)),
                    difference(layers[1].weight.grad(), part(down.grad(), 0))}));
    print("rank {}  Megatron's pair sent {:6} bytes, differs from one process by {:.0e}\n",
          group.rank(), end - middle,
          std::max({difference(y2, y), difference(dx2, x.grad()),
                    difference(pair.up.grad(), part(up.grad(), 0)),
                    difference(pair.down.grad(), part(down.grad(), 1))}));
  });
}
