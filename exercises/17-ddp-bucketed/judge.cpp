// Judges data parallelism with buckets: its gradients, whatever the size of a bucket; the order of
// events; and one order of calls, although gradients become complete in another order on each rank.
#include <algorithm>

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "ddp/buckets.hpp"
#include "exercises/17-ddp-bucketed/interface.hpp"
#include "exercises/judge/ddp/order_of_calls.hpp"
#include "exercises/judge/ddp/overlap_events.hpp"
#include "exercises/judge/single.hpp"

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

// A bucket starts when its last gradient is complete, unless one before it has not started yet.
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

// ---- What CS336 asks, and what it leaves open. Its nets are in fp32

// Sizes of buckets in MB, which hold the same gradients if a MB has 10^6 bytes and if it has 2^20:
// one gradient each; a layer of a LayeredNet (288 bytes, and 320 with the next bias); two.
constexpr double tiny = 1e-5, a_layer = 0.0003, two_in_fp32 = 0.000578;

template <const auto& kinds>
Verdict judge_cs336_gradients(const Run& run) {
  for (const double size : {tiny, a_layer, all}) {
    const std::string name = name_of_size(size);
    const Verdict verdict = named(name, judge_training(part_of(run, name), {.nets = {kinds, 4}}));
    if (!verdict.says.empty()) return verdict;
  }
  return {};
}

// A bucket closes before a gradient that does not fit; with the one with which it reaches its size;
// or when a gradient comes that does not fit, so that it starts with the next bucket's first.
enum class Closing { planned, reached, late };

// CS336 only suggests to begin with the last layer, and does not say whether a bucket may start
// before those that precede it.
ExpectedCalls calls_of_buckets(std::uint64_t seed, double megabytes, bool last_first,
                               Closing closing) {
  struct Layers {
    int first, last;
  };
  auto parameters = LayeredNet(seed, DType::fp32).named_parameters();
  if (last_first) std::reverse(parameters.begin(), parameters.end());
  const double most = megabytes * 1e6;
  double held = 0;
  std::vector<Layers> buckets;
  for (const auto& [name, parameter] : parameters) {
    const double bytes = 4.0 * static_cast<double>(parameter.elements());
    const int layer = name[0] - '0';
    if (buckets.empty() || (closing == Closing::reached ? held : held + bytes) > most) {
      buckets.push_back({layer, layer});
      held = 0;
    }
    buckets.back().first = std::min(buckets.back().first, layer);
    buckets.back().last = std::max(buckets.back().last, layer);
    held += bytes;
  }
  ExpectedCalls expected;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    expected.labels.push_back(fmt::format("bucket {}", b));
    for (int entered = 0; entered < LayeredNet::depth; ++entered) {
      const bool has_next = b + 1 < buckets.size();
      const int awaited = closing != Closing::late ? buckets[b].first
                          : has_next               ? buckets[b + 1].last
                                                   : 0;
      expected.before[static_cast<std::size_t>(entered)] += awaited > entered;
    }
  }
  return expected;
}

Verdict judge_cs336_order(const Run& run) {
  // The first is the one that CS336 suggests.
  constexpr std::pair<bool, Closing> ways[] = {{true, Closing::planned},
                                               {true, Closing::reached},
                                               {true, Closing::late},
                                               {false, Closing::planned},
                                               {false, Closing::reached}};
  for (const double size : {a_layer, two_in_fp32, tiny}) {
    const std::string name = name_of_size(size);
    std::vector<Verdict> verdicts;
    for (const auto& [last_first, closing] : ways)
      verdicts.push_back(
          judge_events(part_of(run, name), calls_of_buckets(run.seed, size, last_first, closing)));
    if (std::none_of(verdicts.begin(), verdicts.end(),
                     [](const Verdict& each) { return each.says.empty(); }))
      return named(name, verdicts[0]);
  }
  return {};
}

Verdict judge_cs336_bucket_size(const Run& run) {
  return first_fault(run, [](int, const Json& calls) -> std::string {
    const double most = a_layer * 1.048576e6;
    for (const Json& call : calls.at("calls"))
      if (const double bytes = call.at("bytes"); bytes > most)
        return fmt::format(
            "a call has {} bytes, where buckets hold at most {} MB, which is {:.0f} "
            "bytes, or {:.0f} in MiB",
            bytes, a_layer, a_layer * 1e6, most);
    return "";
  });
}

const Judge judge("17-ddp-bucketed",
                  {{"gradients", collect_gradients, judge_gradients},
                   {"order", collect_order, judge_order},
                   {"same-order", collect_same_order, judge_same_order},
                   {"steps", collect_steps, judge_steps},
                   {"missing", collect_missing, judge_missing},
                   {"weak", collect_weak, judge_last_weights},
                   {"cs336-gradients", collect_in_torch, judge_cs336_gradients<cs336_net_kinds>},
                   {"cs336-order", collect_in_torch, judge_cs336_order},
                   {"cs336-other-nets", collect_in_torch, judge_cs336_gradients<other_net_kinds>},
                   {"cs336-same-order", collect_in_torch, judge_order_of_calls},
                   {"cs336-bucket-size", collect_in_torch, judge_cs336_bucket_size}});

}  // namespace
}  // namespace ringside::exercises
