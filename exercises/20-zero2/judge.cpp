// Judges sharded gradients: the numbers of a single process, memory by the ledger, and the bytes of
// one reduce-scatter for each bucket.
#include <cmath>
#include <thread>

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "base/trace.hpp"
#include "collectives/transport/transport.hpp"
#include "ddp/buckets.hpp"
#include "exercises/20-zero2/interface.hpp"
#include "exercises/judge/order_of_calls.hpp"
#include "exercises/judge/tensors.hpp"
#include "parallel/replicate.hpp"
#include "zero/shard_plan.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

Method student_with(double megabytes) {
  return [megabytes](const Module& module, collectives::ProcessGroup& group) {
    return student_stage2(module, group, megabytes);
  };
}

Json collect_gradients(World& world) {
  return train_all_kinds(world, student_with(0.0003));
}
Verdict judge_gradients(const Run& run) {
  return judge_training(run);
}

// Eight weights of 5 numbers, each a bucket: no world but one of 5 ranks divides them.
Json collect_uneven(World& world) {
  return step_of_shuffled_net(world, student_with(1e-6));
}
Verdict judge_uneven(const Run& run) {
  for (int rank = 0; rank < run.world; ++rank)
    if (const std::string error = run.ranks[rank].at("error"); !error.empty())
      return {{fmt::format("rank {}: {}", rank, error)}};
  return judge_means(run);
}

// Twenty layers of one size, each a bucket.
struct DeepNet final : Module {
  static constexpr std::int64_t depth = 20, width = 16;
  static constexpr double bucket_mb = width * (width + 1) * 8 / 1e6;
  explicit DeepNet(std::uint64_t seed) {
    for (std::int64_t i = 0; i < depth; ++i) {
      const std::string name = std::to_string(i);
      layers.push_back(std::make_unique<Linear>(width, width, true, Init{seed, name}, DType::fp64));
      register_module(name, *layers.back());
    }
  }
  Tensor loss(std::uint64_t seed, std::uint64_t batch) const {
    Tensor x = random_tensor({4, width}, seed, 100 + batch);
    for (const auto& each : layers) x = x + silu(each->forward(x));
    return sum(x);
  }
  std::vector<std::unique_ptr<Linear>> layers;
};

// One step, in which rank 0 comes late: without a limit the others would fill every bucket first.
Json collect_step(World& world) {
  DeepNet net(world.seed());
  const auto method = student_stage2(net, world.group(), DeepNet::bucket_mb);
  std::size_t most = 0;
  for (const auto& each : net.layers)
    each->register_forward_hook([&](const Tensor& y) {
      y.register_hook([&](const Tensor&) { most = std::max(most, method->buckets_in_memory()); });
    });
  const Tensor loss = net.loss(world.seed(), static_cast<std::uint64_t>(world.rank()));
  if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  world.doing("a step of twenty layers");
  reset_peak_memory();
  const std::uint64_t before = world.group().traffic().payload_bytes_sent;
  Trace trace;
  {
    const Trace::On on(trace);
    backward(loss);
    method->finish_shards();
  }
  Json calls = Json::array();
  Clock::time_point second_call, first_wait = Clock::now();
  for (const Trace::Span& span : trace.spans()) {
    if (span.kind == Trace::Kind::call) calls.push_back(span.name + " of " + span.about);
    if (span.kind == Trace::Kind::call && span.about == "bucket 1") second_call = span.queued;
    if (span.kind == Trace::Kind::wait && span.about == "bucket 0")
      first_wait = std::min(first_wait, span.start);
  }
  return {{"peak", memory_use(MemoryKind::gradients).peak},
          {"kept", memory_use(MemoryKind::gradients).current},
          {"open", most},
          {"open at the end", method->buckets_in_memory()},
          {"calls", calls},
          {"overlaps", second_call < first_wait},
          {"sent", world.group().traffic().payload_bytes_sent - before}};
}

zero::ShardPlan plan_of(const Run& run) {
  return {ddp::plan_buckets(DeepNet(run.seed), DeepNet::bucket_mb), 0, run.world};
}

Verdict judge_memory(const Run& run) {
  const zero::ShardPlan plan = plan_of(run);
  const std::int64_t bucket = plan.padded_elements(0) * 8, shards = plan.padded_bytes() / run.world;
  const auto all = static_cast<double>(bucket * DeepNet::depth);
  for (int rank = 0; rank < run.world; ++rank) {
    const std::int64_t kept = run.ranks[rank].at("kept"), peak = run.ranks[rank].at("peak");
    if (kept > shards)
      return {
          {fmt::format("rank {}: after finish() gradients take {:.2f} n bytes, expected {:.2f} n",
                       rank, static_cast<double>(kept) / all, static_cast<double>(shards) / all)}};
    if (peak > shards + 4 * bucket)
      return {{fmt::format(
          "rank {}: at the peak gradients take {:.2f} n bytes, expected at most "
          "{:.2f} n: this rank's shards and 4 of {} buckets",
          rank, static_cast<double>(peak) / all, static_cast<double>(shards + 4 * bucket) / all,
          static_cast<int>(DeepNet::depth))}};
  }
  return {};
}

Verdict judge_open(const Run& run) {
  for (int rank = 0; rank < run.world; ++rank) {
    const Json& seen = run.ranks[rank];
    if (seen.at("open") > 3 || seen.at("open at the end") != 0)
      return {
          {fmt::format("rank {}: {} buckets were in memory in backward and {} after finish(), "
                       "expected at most 3 and 0",
                       rank, seen["open"].get<int>(), seen["open at the end"].get<int>())}};
    if (!seen.at("overlaps").get<bool>())
      return {
          {fmt::format("rank {}: backward waited for bucket 0 before bucket 1 had set out: "
                       "nothing overlaps",
                       rank)}};
  }
  return {};
}

Verdict judge_bytes(const Run& run) {
  const zero::ShardPlan plan = plan_of(run);
  std::vector<std::string> expected;
  for (std::size_t b = 0; b < plan.buckets().size(); ++b)
    expected.push_back(fmt::format("reduce_scatter of bucket {}", b));
  const std::int64_t bytes = plan.padded_bytes() / run.world * (run.world - 1);
  for (int rank = 0; rank < run.world; ++rank) {
    const std::vector<std::string> calls = run.ranks[rank].at("calls");
    if (calls != expected)
      return {{fmt::format("rank {} made the calls {}; expected reduce_scatter of bucket 0 to {}",
                           rank, fmt::join(calls, ", "), expected.size() - 1)}};
    if (run.ranks[rank].at("sent") != bytes)
      return {{fmt::format("rank {}: sent {} bytes, expected {}: (p-1)/p of each bucket", rank,
                           run.ranks[rank]["sent"].get<std::int64_t>(), bytes)}};
  }
  return {};
}

// Three micro-batches on each rank, the first two under no_sync().
Json collect_micro_batches(World& world) {
  const DeepNet net(world.seed());
  const auto method = student_stage2(net, world.group(), DeepNet::bucket_mb);
  Json seen = Json::array();
  for (int step = 0; step < 2; ++step) {
    net.zero_grad();
    for (int i = 0; i < 3; ++i) {
      world.doing(fmt::format("step {}, micro-batch {}", step, i));
      const auto micro_batch = i < 2 ? method->micro_batch() : nullptr;
      backward(net.loss(world.seed(), static_cast<std::uint64_t>(3 * world.rank() + i)));
    }
    method->finish();
    seen.push_back(Json::object());
    for (const auto& [name, parameter] : net.named_parameters())
      seen.back()[name] = json_of(parameter.grad());
  }
  return seen;
}

Verdict judge_micro_batches(const Run& run) {
  const DeepNet net(run.seed);
  for (int i = 0; i < 3 * run.world; ++i)
    backward(net.loss(run.seed, static_cast<std::uint64_t>(i)) * (1.0 / run.world));
  for (int rank = 0; rank < run.world; ++rank)
    for (std::size_t step = 0; step < 2; ++step)
      for (const auto& [name, parameter] : net.named_parameters()) {
        const std::string fault =
            difference("the gradient of " + name, run.ranks[rank].at(step).at(name),
                       json_of(parameter.grad()));
        if (!fault.empty())
          return {{fmt::format("rank {}, step {}, after 3 micro-batches: {}", rank, step, fault)}};
      }
  return {};
}

const Judge judge("20-zero2", {{"gradients", collect_gradients, judge_gradients},
                               {"memory", collect_step, judge_memory},
                               {"open", collect_step, judge_open},
                               {"bytes", collect_step, judge_bytes},
                               {"micro-batches", collect_micro_batches, judge_micro_batches},
                               {"uneven", collect_uneven, judge_uneven},
                               {"weak", collect_gradients, judge_last_weights}});

}  // namespace
}  // namespace ringside::exercises
