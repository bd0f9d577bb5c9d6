// Stages with gradients: a chain of layers, cut into stages, against the whole chain in one
// process with as many micro-batches.
#include "parallel/pipeline/execution/autograd_stages.hpp"

#include <cstring>
#include <mutex>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/parallel/pipeline/execution/recording_stages.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::pipeline_parallel;
using namespace ringside::tests;

namespace {

constexpr std::int64_t rows = 6, width = 16;

struct Layer : Module {
  explicit Layer(int index, DType dtype)
      : linear(width, width, true, {1, "linear" + std::to_string(index)}, dtype),
        norm(width, 1e-5, dtype) {
    register_module("linear", linear);
    register_module("norm", norm);
  }
  Tensor forward(const Tensor& x) const { return x + silu(linear.forward(norm.forward(x))); }
  Linear linear;
  RMSNorm norm;
};

Tensor input_of(int micro_batch, DType dtype) {
  Tensor x = Tensor::empty({rows, width}, dtype);
  fill_normal(x, 0, 1, {static_cast<std::uint64_t>(micro_batch), "x"});
  return x;
}

Tensor loss_of(const Tensor& y, int micro_batch) {
  return mse_loss(y, input_of(100 + micro_batch, y.dtype()));
}

// Each stage is one layer.
struct Chain : AutogradStages {
  Chain(const Schedule& schedule, int rank, DType type)
      : AutogradStages(schedule, rank), dtype(type) {
    for (const int stage : stages_of(schedule, rank))
      layers.emplace(stage, std::make_unique<Layer>(stage, dtype));
  }
  Tensor compute(int stage, int micro_batch, const Tensor& input) override {
    const Tensor x = stage == 0 ? input_of(micro_batch, dtype) : input;
    const Tensor y = layers.at(stage)->forward(x);
    return stage + 1 == schedule().stages() ? loss_of(y, micro_batch) : y;
  }
  Tensor empty_for(const Action&) override { return Tensor::empty({rows, width}, dtype); }
  std::shared_ptr<void> no_sync() override {
    quiet = true;
    return {nullptr, [this](void*) { quiet = false; }};
  }

  DType dtype;
  std::map<int, std::unique_ptr<Layer>> layers;
  bool quiet = false;
};

struct Single {
  std::vector<std::unique_ptr<Layer>> layers;
  double loss = 0;
  Single(int stages, int micro_batches, DType dtype) {
    for (int s = 0; s < stages; ++s) layers.push_back(std::make_unique<Layer>(s, dtype));
    for (int i = 0; i < micro_batches; ++i) {
      Tensor x = input_of(i, dtype);
      for (const auto& layer : layers) x = layer->forward(x);
      const Tensor mean = loss_of(x, i);
      autograd::backward(mean, Tensor::scalar(1.0 / micro_batches, mean.dtype()));
      loss += mean.item();
    }
    loss /= micro_batches;
  }
};

void require_same_bits(const Layer& expected, const Layer& seen, int stage) {
  const auto a = expected.named_parameters(), b = seen.named_parameters();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Tensor &x = a[i].tensor.grad(), &y = b[i].tensor.grad();
    require(y.defined() &&
                std::memcmp(x.address(), y.address(), x.elements() * size_of(x.dtype())) == 0,
            "the gradient of {} in stage {} has other bits", a[i].name, stage);
  }
}

}  // namespace

TEST_CASE("every schedule gives the bits of a single process with as many micro-batches") {
  for (const int ranks : {1, 2, 3, 4})
    for (const Generator& generator : all_generators())
      for (const int micro_batches : {1, ranks, 2 * ranks})
        for (const DType dtype : {DType::fp32, DType::fp64}) {
          if (!why_not(generator, ranks, micro_batches).empty()) continue;
          CAPTURE(generator.name);
          CAPTURE(micro_batches);
          const Schedule schedule = lower(make_schedule(generator, ranks, micro_batches));
          const Single single(schedule.stages(), micro_batches, dtype);
          on_every_transport(ranks, [&](ProcessGroup& group) {
            Messages messages(group);
            Chain chain(schedule, group.rank(), dtype);
            Executor(schedule, group.rank(), messages, chain).run();
            for (const auto& [stage, layer] : chain.layers)
              require_same_bits(*single.layers[stage], *layer, stage);
            const bool has_last = chain.layers.contains(schedule.stages() - 1);
            const double loss = chain.take_mean_loss();
            require(loss == (has_last ? single.loss : 0), "the loss is {}, not {}", loss,
                    single.loss);
          });
        }
}

// A hook that fires in the wrong half of a split backward, or under no_sync, would reduce partial
// gradients.
TEST_CASE("each gradient is released for reduction once, with the last micro-batch of its stage") {
  for (const Generator& generator : all_generators()) {
    CAPTURE(generator.name);
    constexpr int ranks = 3, micro_batches = 6;
    const Schedule schedule = lower(make_schedule(generator, ranks, micro_batches));
    collectives::run_threads(ranks, [&](ProcessGroup& group) {
      Messages messages(group);
      Chain chain(schedule, group.rank(), DType::fp32);
      std::map<std::pair<int, std::string>, int> quiet, loud;
      for (const auto& [stage, layer] : chain.layers)
        for (const auto& [name, parameter] : layer->named_parameters())
          parameter.register_post_accumulate_grad_hook(
              [&, stage = stage, name = name](const Tensor&) {
                ++(chain.quiet ? quiet : loud)[{stage, name}];
              });
      Executor(schedule, group.rank(), messages, chain).run();
      for (const auto& [stage, layer] : chain.layers)
        for (const auto& [name, parameter] : layer->named_parameters()) {
          require(quiet[{stage, name}] == micro_batches - 1, "{} of stage {}: {} hooks in no_sync",
                  name, stage, quiet[{stage, name}]);
          require(loud[{stage, name}] == 1, "{} of stage {}: {} hooks", name, stage,
                  loud[{stage, name}]);
        }
    });
  }
}

TEST_CASE("between forward and backward a stage keeps what it saved, but not its result") {
  const Schedule schedule = lower(make_schedule("1f1b", 2, 1));
  Chain chain(schedule, 0, DType::fp32);
  const auto before = memory_use().current;
  Tensor result = chain.forward(0, 0, {});
  const auto kept = memory_use().current - before;
  result = {};
  CHECK(kept - (memory_use().current - before) == rows * width * 4);
  (void)chain.backward(0, 0, Tensor::zeros({rows, width}));
}

TEST_CASE("under NoGrad a stage keeps nothing, and the loss is that of a single process") {
  const Schedule schedule = forward_only(loop_placement(3), 2);
  const Single single(3, 2, DType::fp32);
  on_every_transport(3, [&](ProcessGroup& group) {
    const NoGrad no_grad;
    Messages messages(group);
    Chain chain(schedule, group.rank(), DType::fp32);
    Executor(schedule, group.rank(), messages, chain).run();
    require(chain.most_held() == 0, "{} held", chain.most_held());
    require(group.rank() != 2 || chain.take_mean_loss() == single.loss, "another loss");
  });
}
