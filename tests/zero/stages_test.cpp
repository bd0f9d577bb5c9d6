// Every stage against a single process: after each step, every gradient and every parameter is the
// same.
#include "tests/zero/stages.hpp"

#include "autograd/optim/adamw.hpp"
#include "autograd/optim/sgd.hpp"
#include "ddp/flat.hpp"
#include "ddp/naive.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

template <class Stage>
void agrees() {
  agrees_for_all_nets<Stage>();
  agrees_with_single_process<double, Stage>(make_net<SometimesNet>, make_momentum, 1e-12);
  agrees_with_single_process<double, Stage>(make_net<ToyNet>, make_adamw, 1e-9);
}

// Two micro-batches on each rank must give the gradients of the whole batch.
template <class Stage>
void micro_batches_add_up() {
  ToyNet alone(0, DType::fp64);
  backward(loss_of_rows<double>(alone, 0, 24));
  Tensors expected;
  WholeTensors(alone).visit_gradients(
      [&](const NamedTensor& each) { expected[each.name] = each.tensor; });
  for (const int size : {2, 3, 4})
    on_every_transport(size, [&](ProcessGroup& group) {
      ToyNet net(0, DType::fp64);
      Stage stage(net, group);
      const std::int64_t rows = 24 / group.size() / 2;
      const auto micro_batch = [&](std::int64_t i) {
        backward(loss_of_rows<double>(net, (group.rank() * 2 + i) * rows, rows),
                 Tensor::scalar(0.5, DType::fp64));
      };
      {
        const auto accumulate = stage.no_sync();
        micro_batch(0);
      }
      micro_batch(1);
      stage.finish();
      Tensors seen;
      stage.visit_gradients(
          [&](const NamedTensor& each) { seen[each.name] = each.tensor.clone(); });
      if (group.rank() == 0) must_be_equal<double>(seen, expected, 1e-12);
    });
}

// A net of two parameters on four ranks: rank 0 has the shard of both.
template <class Stage>
void more_ranks_than_elements() {
  struct One : Net {
    One() { register_module("fc", fc); }
    Tensor forward(const Tensor& x) const override { return fc.forward(x); }
    Linear fc{1, 1, true, {}, DType::fp64};
  };
  on_every_transport(4, [](ProcessGroup& group) {
    One net, alone;
    Stage stage(net, group);
    const auto optimizer =
        stage.make_optimizer({{parallel::trained_parameters(net), 0.5, 0}}, make_adamw);
    require(optimizer->state().empty() == (group.rank() > 0), "rank {} keeps {} tensors",
            group.rank(), optimizer->state().size());
    AdamW adamw({{parallel::trained_parameters(alone), 0.5, 0}});
    for (int step = 0; step < 3; ++step) {
      const Tensor mine = Tensor::full({1, 1}, group.rank(), DType::fp64);
      const Tensor mean = Tensor::full({1, 1}, 1.5, DType::fp64);
      alone.zero_grad(), optimizer->zero_grad(false);
      backward(sum(net.forward(mine))), backward(sum(alone.forward(mean)));
      stage.finish();
      optimizer->step(), adamw.step();
      const Tensors seen = state_of(stage);
      if (group.rank() == 0) must_be_equal<double>(seen, state_of(WholeTensors(alone)), 1e-12);
    }
  });
}

}  // namespace

TEST_CASE("a sharded optimizer has the gradients and parameters of a single process") {
  agrees_for_all_nets<WithOwners<ddp::Naive>>();
  agrees_with_single_process<float, WithOwners<ddp::Flat>>(make_net<ToyNet>, make_momentum, 1e-5);
  agrees<WithOwners<ddp::Bucketed>>();
}

TEST_CASE("sharded state has the gradients and parameters of a single process") {
  agrees<zero::ShardedState>();
  agrees<StateInBuckets>();
}

TEST_CASE("sharded gradients have the gradients and parameters of a single process") {
  agrees<zero::ShardedGradients>();
  agrees<GradientsInBuckets>();
}

TEST_CASE("sharded parameters have the gradients and parameters of a single process") {
  agrees<zero::ShardedParameters>();
  agrees<ParametersByLayer>();
}

TEST_CASE("micro-batches add up in every stage") {
  micro_batches_add_up<WithOwners<ddp::Bucketed>>();
  micro_batches_add_up<StateInBuckets>();
  micro_batches_add_up<GradientsInBuckets>();
  micro_batches_add_up<ParametersByLayer>();
}

TEST_CASE("there may be more ranks than elements to shard") {
  more_ranks_than_elements<zero::ShardedState>();
  more_ranks_than_elements<zero::ShardedGradients>();
  more_ranks_than_elements<zero::ShardedParameters>();
}
