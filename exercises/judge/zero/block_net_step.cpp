#include "exercises/judge/zero/block_net_step.hpp"

#include "autograd/engine/engine.hpp"
#include "collectives/execution/traffic.hpp"

namespace ringside::exercises {

using namespace autograd;

Json step_of_block_net(World& world, BlockNet::Options options, BlockNet& net,
                       const ShardedStep& method) {
  Json events = Json::array(), calls = Json::array();
  std::string error;
  const auto note = [&](const std::string& what) {
    events.push_back({{"what", what}, {"in memory", net.units_in_memory()}});
  };
  for (const auto& [name, module] : net.named_modules()) {
    if (!net.is_layer(name)) continue;
    module->register_forward_pre_hook([&note, name = name] { note("forward of " + name); });
    module->register_forward_hook([&note, name = name](const Tensor& y) {
      if (y.grad_fn())
        y.register_hook([&note, name](const Tensor&) { note("backward of " + name); });
    });
  }
  world.doing("one step");
  reset_peak_memory();
  const std::uint64_t before = world.group().traffic().payload_bytes_sent;
  world.calls().clear();
  try {
    if (options.history) {
      backward(net.loss(world.seed(), 0, world.rank(), 1));
      method.finish();
    } else {
      const NoGrad no_history;
      (void)net.loss(world.seed(), 0, world.rank(), 1);
    }
    note("end");
    world.group().barrier();
  } catch (const Error& thrown) {
    error = thrown.what();  // the calls that were made explain it
  }
  const std::int64_t peak_of_all = memory_use().peak;
  method.destroy();  // ends its calls
  for (const ObservedCall& each : world.calls().calls())
    calls.push_back({{"call", collectives::name_of(each.call.collective)},
                     {"label", each.call.label.view()},
                     {"bytes", each.bytes()}});
  return {{"events", events},
          {"calls", calls},
          {"error", error},
          {"sent", world.group().traffic().payload_bytes_sent - before},
          {"peak", memory_use(MemoryKind::parameters).peak},
          {"peak of all", peak_of_all}};
}

}  // namespace ringside::exercises
