#include "exercises/judge/zero/ledger_under_zero.hpp"

#include <memory>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "ddp/bucketed.hpp"
#include "exercises/judge/zero/optimizer_training.hpp"
#include "zero/zero1.hpp"
#include "zero/zero2.hpp"
#include "zero/zero3.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

struct Net final : Module {
  static constexpr std::int64_t width = 96, depth = 4;
  explicit Net(DType dtype) {
    for (int i = 0; i < depth; ++i) {
      const std::string name = fmt::format("layer{}", i);
      layers.push_back(std::make_unique<Linear>(width, width, false, Init{1, name}, dtype));
      register_module(name, *layers.back());
    }
  }
  Tensor forward() const {
    Tensor x = Tensor::full({2, width}, 0.5, layers[0]->weight.dtype());
    for (const auto& layer : layers) x = layer->forward(x);
    return x;
  }
  std::vector<std::unique_ptr<Linear>> layers;
};

struct Everywhere : ddp::Bucketed {
  using Bucketed::Bucketed;
  static std::unique_ptr<Optimizer> make_optimizer(std::vector<ParameterGroup> groups,
                                                   const zero::ShardedOptimizer::Make& make) {
    return make(std::move(groups));
  }
};
struct ByLayer : zero::Zero3 {
  ByLayer(Net& net, collectives::ProcessGroup& group)
      : Zero3(net, group, [&] {
          auto modules = net.named_modules();
          modules.erase(modules.begin());
          return modules;
        }()) {}
};

template <class Strategy>
LedgerEntry after_a_step(World& world, int stage, DType dtype) {
  LedgerEntry entry{.what = fmt::format("{}, {}", name_of(dtype),
                                        stage == 0 ? "data parallel without ZeRO"
                                                   : fmt::format("ZeRO stage {}", stage)),
                    .stage = stage,
                    .dtype = dtype,
                    .parameters = Net::depth * Net::width * Net::width};
  world.doing("a step: " + entry.what);
  Net net(dtype);
  Strategy strategy(net, world.group());
  std::vector<ParameterGroup> groups{{net.named_parameters(), 0.01, 0}};
  const auto optimizer = strategy.make_optimizer(std::move(groups), make_adamw);
  backward(net.forward(), Tensor::full({2, Net::width}, 1, dtype));
  strategy.finish();
  optimizer->step();
  entry.bytes = {memory_use(MemoryKind::parameters).current,
                 memory_use(MemoryKind::gradients).current,
                 memory_use(MemoryKind::optimizer_state).current};
  return entry;
}

}  // namespace

std::vector<LedgerEntry> ledger_under_zero(World& world) {
  std::vector<LedgerEntry> entries;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    entries.push_back(after_a_step<Everywhere>(world, 0, dtype));
    entries.push_back(after_a_step<zero::Zero1>(world, 1, dtype));
    entries.push_back(after_a_step<zero::Zero2>(world, 2, dtype));
    entries.push_back(after_a_step<ByLayer>(world, 3, dtype));
  }
  return entries;
}

}  // namespace ringside::exercises
