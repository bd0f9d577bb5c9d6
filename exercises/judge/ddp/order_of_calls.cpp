#include "exercises/judge/ddp/order_of_calls.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "autograd/engine/engine.hpp"
#include "autograd/kernels/copy.hpp"
#include "autograd/ops/ops.hpp"
#include "base/random.hpp"
#include "base/trace/trace.hpp"
#include "ddp/buckets.hpp"
#include "exercises/judge/autograd/tensors.hpp"
#include "exercises/judge/ddp/overlap_events.hpp"

namespace ringside::exercises {

using namespace autograd;

namespace {

constexpr double one_byte = 1e-6;  // of buckets, in MB: each gradient has its own

class ShuffledNet final : public Module {
 public:
  static constexpr std::size_t count = 8;
  static constexpr std::int64_t length = 21;  // which 2 and 4 ranks do not divide
  explicit ShuffledNet(std::uint64_t seed) : seed_(seed), weights_(count) {
    for (std::size_t i = 0; i < count; ++i) {
      weights_[i] = Tensor::full({length}, 1, DType::fp64);
      register_parameter(fmt::format("w{}", i), weights_[i]);
    }
  }

  Tensor loss(int rank) const {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    for (std::size_t i = count; i-- > 1;)
      std::swap(order[i], order[random_below(i + 1, seed_, 8 + static_cast<unsigned>(rank), i)]);
    Tensor loss = Tensor::full({1}, 0, DType::fp64);
    for (const std::size_t i : order) loss = loss + sum(weights_[i] * gradient(i, rank));
    return loss;
  }

  // The weight whose gradient, or 1/ranks of it, begins with these numbers: "w3".
  std::string sent_in(const std::vector<double>& begins, int rank, int ranks) const {
    for (std::size_t i = 0; i < count && begins.size() == 2; ++i) {
      const Tensor mine = gradient(i, rank);
      const auto own = mine.values<double>();
      const auto is = [&](double factor) {
        return std::abs(begins[0] - factor * own[0]) + std::abs(begins[1] - factor * own[1]) < 1e-9;
      };
      if (is(1) || is(1.0 / ranks)) return fmt::format("w{}", i);
    }
    return "something else";
  }

  // That of w{i} on this rank alone.
  Tensor gradient(std::size_t i, int rank) const {
    return random_tensor({length}, seed_, 1000 + 100 * static_cast<unsigned>(rank) + i);
  }

 private:
  std::uint64_t seed_;
  std::vector<Tensor> weights_;
};

}  // namespace

Json step_of_shuffled_net(World& world, const Method& student) {
  const ShuffledNet net(world.seed());
  Json gradients = Json::array();
  int in_backward = 0;
  std::string error;
  Trace trace;
  try {
    const auto method = student(net, world.group());
    world.calls().clear();
    const Trace::On on(trace);
    world.doing("a step in which gradients become complete in another order on each rank");
    backward(net.loss(world.rank()));
    const auto backward_ended = Clock::now();
    method->finish();
    world.group().barrier();
    for (const Trace::Span& span : trace.spans())
      in_backward += span.kind == Trace::Kind::call && span.queued <= backward_ended;
  } catch (const Error& thrown) {
    error = thrown.what();  // calls in another order explain it
  }
  Json calls = Json::array();
  for (const ObservedCall& each : world.calls().calls())
    calls.push_back(net.sent_in(each.begins, world.rank(), world.size()));
  for (const auto& [name, weight] : net.named_parameters())
    gradients.push_back(json_of(weight.grad()));
  return {{"calls", calls},
          {"in backward", in_backward},
          {"of another thread", has_call_of_another_thread(world)},
          {"gradients", gradients},
          {"error", error}};
}

Verdict judge_order_of_calls(const Run& run) {
  std::vector<std::string> expected;  // the weight in each bucket, by its number
  for (const ddp::Bucket& bucket : ddp::plan_buckets(ShuffledNet(run.seed), one_byte))
    expected.push_back(bucket.entries.front().parameter.name);
  for (int rank = 0; rank < run.world; ++rank) {
    const std::vector<std::string> calls = run.ranks[rank].at("calls");
    for (std::size_t i = 0; i < calls.size(); ++i)
      if (i >= expected.size() || calls[i] != expected[i])
        return {{fmt::format("rank {} started calls in the order {}; expected {}", rank,
                             fmt::join(calls, ", "), fmt::join(expected, ", ")),
                 "every rank must start bucket 0, bucket 1, ... in the order of their numbers; "
                 "otherwise two ranks wait for each other in different calls"}};
  }
  if (Verdict threads = judge_threads(run); !threads.says.empty()) return threads;
  for (int rank = 0; rank < run.world; ++rank) {
    const Json& seen = run.ranks[rank];
    if (seen.at("error") != "")
      return {{fmt::format("rank {}: {}", rank, seen["error"].get<std::string>())}};
    if (seen.at("in backward") != ShuffledNet::count)
      return {
          {fmt::format("rank {}: when backward ended, {} of {} complete buckets had started: "
                       "one gradient can release several buckets that wait",
                       rank, seen["in backward"].get<int>(), ShuffledNet::count)}};
  }
  return {};
}

Verdict judge_means(const Run& run) {
  const ShuffledNet net(run.seed);
  for (int rank = 0; rank < run.world; ++rank)
    for (std::size_t i = 0; i < ShuffledNet::count; ++i) {
      const Tensor mean = Tensor::zeros({ShuffledNet::length}, DType::fp64);
      for (int from = 0; from < run.world; ++from)
        accumulate_into(mean, net.gradient(i, from) * (1.0 / run.world));
      const std::string fault = difference(fmt::format("the mean gradient of w{}", i),
                                           run.ranks[rank].at("gradients").at(i), json_of(mean));
      if (!fault.empty()) return {{fmt::format("rank {}: {}", rank, fault)}};
    }
  return {};
}

}  // namespace ringside::exercises
