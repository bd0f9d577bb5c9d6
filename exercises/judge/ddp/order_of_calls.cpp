#include "exercises/judge/ddp/order_of_calls.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "autograd/engine/engine.hpp"
#include "autograd/kernels/copy.hpp"
#include "autograd/ops/ops.hpp"
#include "base/random.hpp"
#include "base/trace.hpp"
#include "exercises/judge/autograd/tensors.hpp"

namespace ringside::exercises {

using namespace autograd;

namespace {

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
  Json calls = Json::array(), gradients = Json::array();
  int in_backward = 0;
  std::string error;
  Trace trace;
  try {
    const auto method = student(net, world.group());
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
  for (const Trace::Span& span : trace.spans())
    if (span.kind == Trace::Kind::call && !span.about.empty()) calls.push_back(span.about);
  for (const auto& [name, weight] : net.named_parameters())
    gradients.push_back(json_of(weight.grad()));
  return {
      {"calls", calls}, {"in backward", in_backward}, {"gradients", gradients}, {"error", error}};
}

Verdict judge_order_of_calls(const Run& run) {
  for (int rank = 0; rank < run.world; ++rank) {
    const std::vector<std::string> calls = run.ranks[rank].at("calls");
    for (std::size_t i = 0; i < calls.size(); ++i)
      if (calls[i] != fmt::format("bucket {}", i))
        return {{fmt::format("rank {} started calls in the order {}", rank, fmt::join(calls, ", ")),
                 "every rank must start bucket 0, bucket 1, ... in the order of their numbers; "
                 "otherwise two ranks wait for each other in different calls"}};
  }
  for (int rank = 0; rank < run.world; ++rank) {
    const Json& seen = run.ranks[rank];
    if (seen.at("error") != "")
      return {{fmt::format("rank {}: {}", rank, seen["error"].get<std::string>())}};
    if (seen.at("in backward") != ShuffledNet::count)
      return {
          {fmt::format("rank {}: when backward ended, {} of {} complete buckets had set out: "
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
