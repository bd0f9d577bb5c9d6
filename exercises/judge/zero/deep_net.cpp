#include "exercises/judge/zero/deep_net.hpp"

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "base/trace/trace.hpp"
#include "collectives/execution/traffic.hpp"
#include "exercises/judge/autograd/tensors.hpp"

namespace ringside::exercises {

using namespace autograd;

DeepNet::DeepNet(std::uint64_t seed) {
  for (std::int64_t i = 0; i < depth; ++i) {
    const std::string name = std::to_string(i);
    layers.push_back(std::make_unique<Linear>(width, width, true, Init{seed, name}, DType::fp64));
    register_module(name, *layers.back());
  }
}

Tensor DeepNet::loss(std::uint64_t seed, std::uint64_t batch) const {
  Tensor x = random_tensor({4, width}, seed, 100 + batch);
  for (const auto& each : layers) x = x + silu(each->forward(x));
  return sum(x);
}

Json step_of_deep_net(World& world, const std::function<MakeShardedMethod>& student) {
  DeepNet net(world.seed());
  const std::int64_t memory_of_net = memory_use().current;
  Trace trace;  // outlives the method, whose calls write into it
  const auto method = student(net, world.group(), DeepNet::bucket_mb);
  std::size_t most = 0;
  for (const auto& each : net.layers)
    each->register_forward_hook([&](const Tensor& y) {
      y.register_hook([&](const Tensor&) { most = std::max(most, method->buckets_in_memory()); });
    });
  const Tensor loss = net.loss(world.seed(), static_cast<std::uint64_t>(world.rank()));
  world.doing("a step of twenty layers");
  reset_peak_memory();
  world.calls().clear();
  world.calls().hold(std::chrono::milliseconds(200));
  const std::uint64_t before = world.group().traffic().payload_bytes_sent;
  {
    const Trace::On on(trace);
    backward(loss);
    world.calls().release();
    method->finish_shards();
  }
  Json calls = Json::array();
  // A bucket whose call has ended may be emptied at any time: that is no waiting.
  Clock::time_point first_call_ended, second_call, first_wait = Clock::now();
  int ended = 0;
  for (const Trace::Span& span : trace.spans()) {
    if (span.kind == Trace::Kind::call && ended == 0) first_call_ended = span.end;
    if (span.kind == Trace::Kind::call && ended == 1) second_call = span.queued;
    ended += span.kind == Trace::Kind::call;
    if (span.kind == Trace::Kind::wait) first_wait = std::min(first_wait, span.start);
  }
  for (const ObservedCall& each : world.calls().calls())
    calls.push_back(collectives::name_of(each.call.collective));
  return {{"peak", memory_use(MemoryKind::gradients).peak},
          {"kept", memory_use(MemoryKind::gradients).current},
          {"kept of all kinds", memory_use().current - memory_of_net},
          {"open", most},
          {"open at the end", method->buckets_in_memory()},
          {"calls", calls},
          {"overlaps", first_wait >= std::min(first_call_ended, second_call)},
          {"sent", world.group().traffic().payload_bytes_sent - before}};
}

}  // namespace ringside::exercises
