// Micro-batches that do not all reach the same parameters: what an earlier one gave must not be
// lost.

#include <doctest/doctest.h>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "base/error.hpp"
#include "collectives/process_group.hpp"
#include "ddp/bucketed.hpp"
#include "ddp/overlap.hpp"

namespace ringside::ddp {
namespace {

using autograd::Tensor;

struct Pair : autograd::Module {
  Pair() {
    register_module("first", first);
    register_module("second", second);
  }
  autograd::Linear first{2, 2, false, {}, autograd::DType::fp64},
      second{2, 2, false, {}, autograd::DType::fp64};
};

void check_mean(const autograd::NamedTensor& parameter, double expected) {
  require(parameter.tensor.grad().defined(), "{} has no gradient", parameter.name);
  for (const double value : parameter.tensor.grad().values<double>())
    require(value == expected, "{}: the mean of the ranks' gradients is {}, not {}", parameter.name,
            expected, value);
}

// The first micro-batch goes through `first`, the last through `second` alone.
template <class Strategy, class... More>
void check_halves(More... more) {
  for (const int ranks : {2, 3}) {
    collectives::run_threads(ranks, [&](collectives::ProcessGroup& group) {
      Pair model;
      Strategy strategy(model, group, more...);
      const Tensor x = Tensor::full({1, 2}, group.rank() + 1.0, autograd::DType::fp64);
      for (int step = 0; step < 2; ++step) {
        model.zero_grad(false);
        {
          const auto quiet = strategy.no_sync();
          autograd::backward(autograd::sum(model.first.forward(x)));
        }
        require(strategy.launched() == 0, "it communicated under no_sync()");
        autograd::backward(autograd::sum(model.second.forward(x)));
        strategy.finish();
        for (const autograd::NamedTensor& parameter : model.named_parameters())
          check_mean(parameter, (ranks + 1) / 2.0);
      }
    });
  }
}

}  // namespace

TEST_CASE("a gradient that only an earlier micro-batch gave is averaged too by overlap") {
  check_halves<Overlap>();
}

TEST_CASE("a gradient that only an earlier micro-batch gave is averaged too by buckets") {
  check_halves<Bucketed>(1.0);      // both in one bucket
  check_halves<Bucketed>(0.00003);  // each in its own
}

}  // namespace ringside::ddp
