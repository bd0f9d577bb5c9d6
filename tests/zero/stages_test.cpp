// Stages 1 (second form), 2 and 3 against the single process: after every step, every gradient and
// every parameter is the same.
//
// SGD and different data on every rank: see tests/ddp/data_parallel_test.cpp.
#include "tests/zero/stages.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

// A layer that every other step does not use.
class SometimesNet final : public Net {
 public:
  SometimesNet(std::uint64_t seed, DType dtype)
      : fc1(10, 20, true, {seed, "fc1"}, dtype),
        extra(20, 20, true, {seed, "extra"}, dtype),
        fc2(20, 5, true, {seed, "fc2"}, dtype) {
    register_module("fc1", fc1), register_module("extra", extra), register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor hidden = relu(fc1.forward(x));
    return fc2.forward(calls_++ % 2 == 0 ? hidden : relu(extra.forward(hidden)));
  }
  Linear fc1, extra, fc2;

 private:
  mutable int calls_ = 0;
};

const MakeNet nets[] = {
    [](std::uint64_t seed, DType dtype) { return std::make_unique<ToyNet>(seed, dtype); },
    [](std::uint64_t seed, DType dtype) { return std::make_unique<TiedNet>(seed, dtype); },
    [](std::uint64_t seed, DType dtype) {
      return std::make_unique<FrozenAndUnusedNet>(seed, dtype);
    },
    [](std::uint64_t seed, DType dtype) { return std::make_unique<SometimesNet>(seed, dtype); },
};

std::unique_ptr<Optimizer> make_momentum(std::vector<ParameterGroup> groups) {
  return std::make_unique<SGD>(std::move(groups), SgdOptions{.momentum = 0.9});
}

std::unique_ptr<Optimizer> make_adamw(std::vector<ParameterGroup> groups) {
  return std::make_unique<AdamW>(std::move(groups));
}

template <class T, class Stage>
void agrees_with_single_process(const MakeNet& make, const MakeOptimizer& make_optimizer,
                                double tolerance) {
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    const std::int64_t batch = 100 / size * size;
    const auto alone = make(0, dtype_of<T>());
    const History wanted = train<T>(
        *alone, 0, batch, [] {}, make_optimizer);
    on_every_transport(size, [&](ProcessGroup& group) {
      const auto net = make(static_cast<std::uint64_t>(group.rank()), dtype_of<T>());
      Stage stage(*net, group);
      must_train_like<T>(*net, stage, group, batch, wanted, make_optimizer, tolerance);
    });
  }
}

template <class Stage>
void all_nets_agree() {
  for (const MakeNet& make : nets) {
    agrees_with_single_process<float, Stage>(make, make_sgd, 1e-5);
    agrees_with_single_process<double, Stage>(make, make_sgd, 1e-12);
  }
  agrees_with_single_process<double, Stage>(nets[3], make_momentum, 1e-12);
  agrees_with_single_process<double, Stage>(nets[0], make_adamw, 1e-9);
}

// What a step of accumulated micro-batches gives must be what one of all of them gives.
template <class Stage>
void micro_batches_add_up() {
  ToyNet alone(0, DType::fp64);
  const Tensor x = rows_of<double>(0, 0, 24, 10), y = rows_of<double>(1, 0, 24, 5);
  backward(mse_loss(alone.forward(x), y));
  for (const int size : {2, 3})
    on_every_transport(size, [&](ProcessGroup& group) {
      ToyNet net(0, DType::fp64);
      Stage stage(net, group);
      const std::int64_t rows = 24 / group.size() / 2;
      const auto micro_batch = [&](std::int64_t i) {
        const std::int64_t first = (group.rank() * 2 + i) * rows;
        const Tensor loss = mse_loss(net.forward(rows_of<double>(0, first, rows, 10)),
                                     rows_of<double>(1, first, rows, 5));
        backward(loss, Tensor::scalar(0.5, DType::fp64));
      };
      {
        const auto quiet = stage.no_sync();
        micro_batch(0);
      }
      micro_batch(1);
      stage.finish();
      Tensors seen;
      stage.visit_gradients(
          [&](const NamedTensor& each) { seen[each.name] = each.tensor.clone(); });
      if (group.rank() != 0) return;
      std::vector<NamedTensor> wanted;
      for (const auto& [name, parameter] : alone.named_parameters())
        wanted.push_back({name, parameter.grad()});
      must_be_equal<double>(seen, wanted, 1e-12);
    });
}

// fc2's bias gets no gradient on rank 1, because there forward does not use it.
template <class Stage>
void names_the_gradient_that_is_missing() {
  struct SomeBias : Net {
    explicit SomeBias(bool with_bias) : with(with_bias) {
      register_module("fc1", fc1), register_module("add", add);
    }
    struct Add : Module {
      Tensor bias = Tensor::zeros({5});
      Add() { register_parameter("bias", bias); }
      Tensor forward(const Tensor& x, bool on) const {
        return with_hooks([&] { return on ? x + bias : x + bias.detach(); });
      }
    };
    Tensor forward(const Tensor& x) const override { return add.forward(fc1.forward(x), with); }
    Linear fc1{10, 5};
    Add add;
    bool with;
  };
  const auto outcomes = run_tcp(3, [](ProcessGroup& group) {
    SomeBias net(group.rank() != 1);
    Stage stage(net, group);
    backward(mse_loss(net.forward(rows_of<float>(0, 0, 4, 10)), rows_of<float>(1, 0, 4, 5)));
    stage.finish();
    group.barrier();
  });
  int named = 0;
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(contains(text, "the ranks disagree"));
    named += contains(text, "for bucket 0 without add.bias") && contains(text, "for bucket 0,");
  }
  CHECK(named >= 1);
}

template <class Stage>
void few_numbers_for_many_ranks() {
  struct One : Net {
    One() { register_module("fc", fc); }
    Tensor forward(const Tensor& x) const override { return fc.forward(x); }
    Linear fc{1, 1, true, {}, DType::fp64};
  };
  on_every_transport(4, [](ProcessGroup& group) {
    One net;
    Stage stage(net, group);
    const auto optimizer = stage.make_optimizer({{trained(net), 0.5, 0}}, make_adamw);
    require((optimizer->state().empty()) == (group.rank() > 0), "rank {} keeps {} tensors",
            group.rank(), optimizer->state().size());
    One alone;
    AdamW adamw({{trained(alone), 0.5, 0}});
    for (int step = 0; step < 3; ++step) {
      const Tensor mine = Tensor::full({1, 1}, group.rank(), DType::fp64),
                   mean = Tensor::full({1, 1}, 1.5, DType::fp64);
      alone.zero_grad(), optimizer->zero_grad(false);
      backward(sum(net.forward(mine))), backward(sum(alone.forward(mean)));
      stage.finish();
      optimizer->step(), adamw.step();
      const Tensors seen = whole_state(stage);
      if (group.rank() == 0) must_be_equal<double>(seen, state_of<double>(alone), 1e-12);
    }
  });
}

}  // namespace

TEST_CASE("sharded state gives the single process's gradients and parameters") {
  all_nets_agree<zero::ShardedState>();
  all_nets_agree<StateInBuckets>();
}

TEST_CASE("sharded gradients give the single process's gradients and parameters") {
  all_nets_agree<zero::ShardedGradients>();
  all_nets_agree<GradientsInBuckets>();
}

TEST_CASE("sharded parameters give the single process's gradients and parameters") {
  all_nets_agree<zero::ShardedParameters>();
  all_nets_agree<ParametersByLayer>();
}

TEST_CASE("micro-batches add up in every stage") {
  micro_batches_add_up<StateInBuckets>();
  micro_batches_add_up<GradientsInBuckets>();
  micro_batches_add_up<ParametersByLayer>();
}

TEST_CASE("every stage names the gradient that is missing on one rank") {
  names_the_gradient_that_is_missing<zero::ShardedState>();
  names_the_gradient_that_is_missing<zero::ShardedGradients>();
  names_the_gradient_that_is_missing<zero::ShardedParameters>();
}

TEST_CASE("more ranks than numbers") {
  few_numbers_for_many_ranks<zero::ShardedState>();
  few_numbers_for_many_ranks<zero::ShardedGradients>();
  few_numbers_for_many_ranks<zero::ShardedParameters>();
}

TEST_CASE("a second backward without finish is refused by name") {
  collectives::run_threads(2, [](ProcessGroup& group) {
    ToyNet net(0, DType::fp32);
    zero::ShardedGradients stage(net, group);
    const Tensor x = rows_of<float>(0, 0, 4, 10), y = rows_of<float>(1, 0, 4, 5);
    backward(mse_loss(net.forward(x), y));
    std::string text;
    try {
      backward(mse_loss(net.forward(x), y));
    } catch (const Error& error) {
      text = error.what();
    }
    require(text ==
                "the gradient of fc2.weight is complete a second time, and its bucket may have set "
                "out: call finish() after every "
                "backward, or no_sync() before all but the last",
            "it said: {}", text);
    stage.finish();
  });
}

TEST_CASE("an optimizer over a parameter that is not shared out says so") {
  collectives::run_threads(2, [](ProcessGroup& group) {
    FrozenAndUnusedNet net(0, DType::fp32);
    zero::ShardedState stage(net, group);
    std::string text;
    try {
      (void)stage.make_optimizer({{net.named_parameters(), 0.1, 0}}, make_sgd);
    } catch (const Error& error) {
      text = error.what();
    }
    require(text ==
                "'fc1.bias' is not among the parameters that are shared out: it was frozen, or is "
                "of another model",
            "it said: {}", text);
  });
}
