// Every stage against a single process: after each step, every gradient and every parameter is the
// same.
#include "tests/zero/stages.hpp"

#include "autograd/kernels/copy.hpp"
#include "autograd/optim/adamw.hpp"
#include "autograd/optim/sgd.hpp"
#include "ddp/flat.hpp"
#include "ddp/naive.hpp"
#include "tests/text.hpp"
#include "tests/zero/llama.hpp"

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
        stage.make_optimizer({{ddp::trained_parameters(net), 0.5, 0}}, make_adamw);
    require(optimizer->state().empty() == (group.rank() > 0), "rank {} keeps {} tensors",
            group.rank(), optimizer->state().size());
    AdamW adamw({{ddp::trained_parameters(alone), 0.5, 0}});
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

// On rank 0: the tensors that `visit` shows whose names end in `ending`, without it.
Tensors shown(const std::function<void(const zero::SeeTensor&)>& visit, const std::string& ending) {
  Tensors seen;
  visit([&](const NamedTensor& each) {
    if (each.name.ends_with(ending))
      seen[each.name.substr(0, each.name.size() - ending.size())] =
          to_compute_dtype(each.tensor).clone();
  });
  return seen;
}

}  // namespace

// Two ways to keep 32 bits of a parameter: in the shard, or in a master copy beside a bf16 shard.
TEST_CASE(
    "fp32 shards of bf16 parameters have the bits and the bytes of bf16 shards with masters") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      transformer::Model model(small_llama(), DType::bf16), other(small_llama(), DType::bf16);
      zero::Zero3 with_masters(model, group), fp32(other, group, {}, true);
      const auto groups_of = [](const transformer::Model& its) {
        return std::vector<ParameterGroup>{{ddp::trained_parameters(its), 1e-4, 0.1}};
      };
      const auto masters = with_masters.make_optimizer(groups_of(model), make_adamw),
                 shards = fp32.make_optimizer(groups_of(other), make_adamw);
      const auto bytes_of = [&](auto&& run) {
        const std::uint64_t before = group.traffic().payload_bytes_sent;
        run();
        return group.traffic().payload_bytes_sent - before;
      };
      for (int step = 0; step < 3; ++step) {
        const auto train = [&](const transformer::Model& its, zero::Zero3& stage) {
          backward(loss_of(its, group.rank() + step));
          stage.finish();
        };
        const std::uint64_t sent = bytes_of([&] { train(model, with_masters); }),
                            sent_fp32 = bytes_of([&] { train(other, fp32); });
        require(sent == sent_fp32, "fp32 shards send {} bytes, bf16 shards {}", sent_fp32, sent);
        const auto gradients = [](const zero::Zero3& stage) {
          return shown([&](const auto& see) { stage.visit_gradients(see); }, "");
        };
        const Tensors expected = gradients(with_masters), seen = gradients(fp32);
        if (group.rank() == 0) must_be_equal<float>(seen, expected, 0);
        masters->step(), shards->step();
      }
      const auto state = [](const zero::ShardedOptimizer& optimizer, const char* ending) {
        return shown([&](const auto& see) { optimizer.visit_state(see); }, ending);
      };
      const Tensors expected = state(*masters, ".master"), moments = state(*masters, ".exp_avg"),
                    none = state(*shards, ".master"), seen_moments = state(*shards, ".exp_avg"),
                    seen = shown([&](const auto&see) { fp32.visit_parameters(see); }, ""),
                    rounded =
                        shown([&](const auto&see) { with_masters.visit_parameters(see); }, "");
      if (group.rank() > 0) return;
      must_be_equal<float>(seen, expected, 0);
      must_be_equal<float>(seen_moments, moments, 0);
      require(none.empty(), "fp32 shards have {} masters", none.size());
      require(!expected.empty() && expected.size() == rounded.size(), "{} masters",
              expected.size());
    });
}

TEST_CASE("a sharded optimizer has the gradients and parameters of a single process") {
  agrees_for_all_nets<WithOwners<ddp::Naive>>();
  agrees_with_single_process<float, WithOwners<ddp::Flat>>(make_net<ToyNet>, make_momentum, 1e-5);
  agrees<WithOwners<ddp::Bucketed>>();
}

TEST_CASE("sharded state has the gradients and parameters of a single process") {
  agrees<zero::Zero1>();
  agrees<StateInBuckets>();
}

TEST_CASE("sharded gradients have the gradients and parameters of a single process") {
  agrees<zero::Zero2>();
  agrees<GradientsInBuckets>();
}

TEST_CASE("sharded parameters have the gradients and parameters of a single process") {
  agrees<zero::Zero3>();
  agrees<ParametersByLayer>();
}

TEST_CASE("micro-batches add up in every stage") {
  micro_batches_add_up<WithOwners<ddp::Bucketed>>();
  micro_batches_add_up<StateInBuckets>();
  micro_batches_add_up<GradientsInBuckets>();
  micro_batches_add_up<ParametersByLayer>();
}

TEST_CASE("there may be more ranks than elements to shard") {
  more_ranks_than_elements<zero::Zero1>();
  more_ranks_than_elements<zero::Zero2>();
  more_ranks_than_elements<zero::Zero3>();
}
