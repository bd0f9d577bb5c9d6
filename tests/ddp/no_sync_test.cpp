// Micro-batches: what they accumulate is averaged, also if they do not all reach the same
// parameters.
#include "ddp/bucketed.hpp"
#include "ddp/overlap.hpp"
#include "tests/parallel/single_process.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

struct Pair : Module {
  Pair() {
    register_module("first", first);
    register_module("second", second);
  }
  Linear first{2, 2, false, {}, DType::fp64}, second{2, 2, false, {}, DType::fp64};
};

// The first micro-batch reaches only `first`, the last one only `second`.
template <class Strategy, class... More>
void averages_gradients_of_both_micro_batches(More... more) {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [&](ProcessGroup& group) {
      Pair model;
      Strategy strategy(model, group, more...);
      const Tensor x = Tensor::full({1, 2}, group.rank() + 1.0, DType::fp64);
      const double mean = (group.size() + 1) / 2.0;
      for (int step = 0; step < 2; ++step) {
        model.zero_grad(false);
        {
          const auto accumulate = strategy.no_sync();
          backward(sum(model.first.forward(x)));
        }
        require(strategy.launched() == 0, "it communicated under no_sync()");
        backward(sum(model.second.forward(x)));
        strategy.finish();
        for (const auto& [name, parameter] : model.named_parameters()) {
          require(parameter.grad().defined(), "{} has no gradient", name);
          for (const double seen : parameter.grad().template values<double>())
            require(seen == mean, "{}: the mean of the gradients is {}, not {}", name, mean, seen);
        }
      }
    });
}

// The micro-batches of rank r, of two rows each: every number is 1 + i + 10 r.
Tensor micro_batch(int rank, int i) {
  return Tensor::full({2, DeepNet::width}, 1.0 + i + 10 * rank);
}

template <class Strategy, class... More>
void averages_the_sum(ProcessGroup& group, More... more) {
  DeepNet net, alone;
  Strategy parallel(net, group, more...);
  {
    const auto accumulate = parallel.no_sync();
    backward(sum(net.forward(micro_batch(group.rank(), 0))));
    require(parallel.launched() == 0, "it communicated under no_sync()");
  }
  backward(sum(net.forward(micro_batch(group.rank(), 1))));
  parallel.finish();

  for (int rank = 0; rank < group.size(); ++rank)
    for (int i = 0; i < 2; ++i)
      backward(scale(sum(alone.forward(micro_batch(rank, i))), 1.0 / group.size()));
  must_be_equal<float>(state_of(WholeTensors(net)), state_of(WholeTensors(alone)), 1e-4);
}

}  // namespace

TEST_CASE("under no_sync() gradients add up, and the last backward averages the sum") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      averages_the_sum<ddp::Overlap>(group);
      averages_the_sum<ddp::Bucketed>(group, DeepNet::layer_mb);
    });
}

TEST_CASE("overlap averages a gradient that only an earlier micro-batch gave") {
  averages_gradients_of_both_micro_batches<ddp::Overlap>();
}

TEST_CASE("bucketed averages a gradient that only an earlier micro-batch gave") {
  averages_gradients_of_both_micro_batches<ddp::Bucketed>(1.0);   // both in one bucket
  averages_gradients_of_both_micro_batches<ddp::Bucketed>(3e-5);  // one bucket for each
}
