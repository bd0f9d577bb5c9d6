// Judges sharded gradients: the numbers of a single process, memory by the ledger, and the bytes of
// one reduce-scatter for each bucket.
#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "ddp/buckets.hpp"
#include "exercises/20-zero2/interface.hpp"
#include "exercises/judge/autograd/tensors.hpp"
#include "exercises/judge/ddp/order_of_calls.hpp"
#include "exercises/judge/zero/deep_net.hpp"
#include "zero/shard_layout.hpp"

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
  const Verdict error = first_error(run);
  return error.says.empty() ? judge_means(run) : error;
}

Json collect_step(World& world) {
  return step_of_deep_net(world, student_stage2);
}

zero::ShardLayout plan_of(const Run& run) {
  return {ddp::plan_buckets(DeepNet(run.seed), DeepNet::bucket_mb), 0, run.world};
}

Verdict judge_memory(const Run& run) {
  const zero::ShardLayout plan = plan_of(run);
  const std::int64_t bucket = plan.padded_elements(0) * 8, shards = plan.padded_bytes() / run.world;
  const auto parts = [&](std::int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(bucket * DeepNet::depth);
  };
  return first_fault(run, [&](int, const Json& seen) -> std::string {
    const std::int64_t kept = seen.at("kept"), peak = seen.at("peak"), most = shards + 4 * bucket;
    if (kept > shards)
      return fmt::format("after finish() gradients take {:.2f} n bytes, expected {:.2f} n",
                         parts(kept), parts(shards));
    if (const std::int64_t all = seen.at("kept of all kinds"); all > most)
      return fmt::format(
          "after finish() memory of all kinds takes {:.2f} n bytes more than the net, expected at "
          "most {:.2f} n: this rank's shards, and 4 buckets to spare",
          parts(all), parts(most));
    if (peak > most)
      return fmt::format(
          "at the peak gradients take {:.2f} n bytes, expected at most {:.2f} n: "
          "this rank's shards and 4 of {} buckets",
          parts(peak), parts(most), static_cast<int>(DeepNet::depth));
    return "";
  });
}

Verdict judge_open(const Run& run) {
  return first_fault(run, [](int, const Json& seen) -> std::string {
    const int most = seen.at("open"), end = seen.at("open at the end");
    if (most > 3 || end != 0)
      return fmt::format(
          "{} buckets were in memory in backward and {} after finish(), expected at "
          "most 3 and 0",
          most, end);
    if (!seen.at("overlaps").get<bool>())
      return "backward waited for bucket 0 before bucket 1 had started: nothing overlaps";
    return "";
  });
}

Verdict judge_bytes(const Run& run) {
  const zero::ShardLayout plan = plan_of(run);
  const std::vector<std::string> expected(plan.buckets().size(), "reduce_scatter");
  const std::int64_t bytes = plan.padded_bytes() / run.world * (run.world - 1);
  return first_fault(run, [&](int, const Json& seen) -> std::string {
    const std::vector<std::string> calls = seen.at("calls");
    if (calls != expected)
      return fmt::format("made {} calls: {}; expected {} of reduce_scatter, one for each bucket",
                         calls.size(), fmt::join(calls, ", "), expected.size());
    if (const std::int64_t sent = seen.at("sent"); sent != bytes)
      return fmt::format("sent {} bytes, expected {}: (p-1)/p of each bucket", sent, bytes);
    return "";
  });
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
  return first_fault(run, [&](int, const Json& seen) -> std::string {
    for (std::size_t step = 0; step < 2; ++step)
      for (const auto& [name, parameter] : net.named_parameters())
        if (const std::string fault = difference("the gradient of " + name, seen.at(step).at(name),
                                                 json_of(parameter.grad()));
            !fault.empty())
          return fmt::format("step {}, after 3 micro-batches: {}", step, fault);
    return "";
  });
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
