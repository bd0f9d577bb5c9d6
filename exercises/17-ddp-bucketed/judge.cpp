// Judges data parallelism with buckets: its gradients, whatever the size of a bucket; the order of
// events; and one order of calls, although gradients become complete in another order on each rank.
#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "ddp/buckets.hpp"
#include "exercises/17-ddp-bucketed/interface.hpp"
#include "exercises/judge/ddp/order_of_calls.hpp"
#include "exercises/judge/ddp/overlap_events.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

// Sizes of buckets in MB: one gradient each; a few; one layer, or two, of a LayeredNet; all.
constexpr double byte = 1e-6, few = 0.0003, one_layer = 0.0006, two_layers = 0.0012, all = 1000;

std::string name_of_size(double megabytes) {
  return fmt::format("buckets of {:.0f} bytes", megabytes * 1e6);
}

Method student_with(double megabytes) {
  return [megabytes](const Module& module, collectives::ProcessGroup& group) {
    return student_bucketed(module, group, megabytes);
  };
}

// "buckets of 300 bytes, net 'tied', step 0, rank 1: ..."
Verdict named(const std::string& what, Verdict verdict) {
  if (!verdict.says.empty()) verdict.says[0] = fmt::format("{}, {}", what, verdict.says[0]);
  return verdict;
}

Json collect_gradients(World& world) {
  Json seen;
  for (const double size : {byte, few, all})
    seen[name_of_size(size)] = train_all_kinds(world, student_with(size));
  return seen;
}

Verdict judge_gradients(const Run& run) {
  for (const double size : {byte, few, all}) {
    const std::string name = name_of_size(size);
    const Verdict verdict = named(name, judge_training(part_of(run, name)));
    if (!verdict.says.empty()) return verdict;
  }
  return {};
}

constexpr TrainingPlan in_turn = {.zero_in_turn = true};
constexpr TrainingPlan three_in_turn = {.micro_batches = 3, .zero_in_turn = true};

Json collect_steps(World& world) {
  return {{"one", train_all_kinds(world, student_with(few), in_turn)},
          {"three", train_all_kinds(world, student_with(few), three_in_turn)}};
}

Verdict judge_steps(const Run& run) {
  const Verdict one = named("zero_grad(false) before steps 0 and 2, zero_grad(true) before 1 and 3",
                            judge_training(part_of(run, "one"), in_turn));
  if (!one.says.empty()) return one;
  return named("3 micro-batches", judge_training(part_of(run, "three"), three_in_turn));
}

Json collect_order(World& world) {
  Json seen;
  for (const double size : {one_layer, two_layers, byte})
    seen[name_of_size(size)] = events_of_steps(world, student_with(size));
  seen["failed step"] = ending_of_failed_step(world, student_with(one_layer));
  return seen;
}

// A bucket sets out when its last gradient is complete, unless one before it has not set out yet.
ExpectedCalls expected_calls(const Run& run, double megabytes) {
  ExpectedCalls expected;
  const auto buckets = ddp::plan_buckets(LayeredNet(run.seed), megabytes);
  expected.before.fill(buckets.size());
  for (std::size_t b = buckets.size(); b-- > 0;) {
    expected.labels.insert(expected.labels.begin(), fmt::format("bucket {}", b));
    for (const ddp::BucketEntry& entry : buckets[b].entries)  // "2.weight" is complete in layer 2
      for (int layer = entry.parameter.name[0] - '0'; layer < LayeredNet::depth; ++layer)
        expected.before[static_cast<std::size_t>(layer)] = b;
  }
  return expected;
}

Verdict judge_order(const Run& run) {
  Verdict failed_step = judge_failed_step(part_of(run, "failed step"));
  for (const double size : {one_layer, two_layers, byte}) {
    const std::string name = name_of_size(size);
    Verdict verdict = named(name, judge_events(part_of(run, name), expected_calls(run, size)));
    if (verdict.says.empty()) continue;
    verdict.says.insert(verdict.says.end(), failed_step.says.begin(), failed_step.says.end());
    return verdict;
  }
  return failed_step;
}

Json collect_same_order(World& world) {
  return step_of_shuffled_net(world, student_with(byte));
}
Verdict judge_same_order(const Run& run) {
  const Verdict calls = judge_order_of_calls(run);
  return calls.says.empty() ? judge_means(run) : calls;
}

// Rank 0 leaves out layer 1.
Json collect_missing(World& world) {
  const LayeredNet net(world.seed());
  try {  // a slow rank may still be in its first broadcast when the others find the difference
    const auto method = student_bucketed(net, world.group(), one_layer);
    world.doing("finish(), where rank 0 lacks the gradients of layer 1");
    Tensor x = Tensor::full({4, 8}, 1, DType::fp64);
    for (std::size_t i = 0; i < net.layers.size(); ++i)
      if (i != 1 || world.rank() > 0) x = silu(net.layers[i]->forward(x));
    backward(sum(x));
    method->finish();
    world.group().barrier();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Verdict judge_missing(const Run& run) {
  return judge_missing_gradient(run);
}

Json collect_weak(World& world) {
  return train_all_kinds(world, student_with(few));
}

const Judge judge("17-ddp-bucketed", {{"gradients", collect_gradients, judge_gradients},
                                      {"order", collect_order, judge_order},
                                      {"same-order", collect_same_order, judge_same_order},
                                      {"steps", collect_steps, judge_steps},
                                      {"missing", collect_missing, judge_missing},
                                      {"weak", collect_weak, judge_last_weights}});

}  // namespace
}  // namespace ringside::exercises
