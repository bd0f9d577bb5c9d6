#include "exercises/judge/autograd/engine_graphs.hpp"

#include "autograd/engine/node.hpp"
#include "autograd/ops/ops.hpp"
#include "base/error.hpp"
#include "base/random.hpp"

namespace ringside::exercises {

using namespace autograd;

std::vector<double> numbers(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  const auto values = tensor.values<double>();
  return {values.begin(), values.end()};
}

Tensor random_leaf(std::uint64_t seed, std::uint64_t which, std::int64_t length) {
  std::vector<double> values(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random_normal(seed, which, i);
  return Tensor::from(values, {length}).set_requires_grad(true);
}

namespace {

// The op a + 0 b, whose backward gives no gradient for b.
Tensor first_of(const Tensor& a, const Tensor& b) {
  return record("first_of", a.clone(), {a, b}, [](const Node&, const Tensor& dy) -> Gradients {
    return {dy, Tensor()};
  });
}

// Notes when hooks run, and what a leaf's gradient is then.
struct Events {
  Json all = Json::array();
  void watch_leaf(const std::string& name, const Tensor& leaf) {
    leaf.register_post_accumulate_grad_hook([this, name](const Tensor& each) {
      all.push_back({{"what", "the hook of " + name}, {"gradient", numbers(each.grad())}});
    });
  }
  Tensor watched(const std::string& name, const Tensor& result) {
    result.register_hook([this, name](const Tensor&) {
      all.push_back({{"what", "backward enters " + name}});
    });
    return result;
  }
};

}  // namespace

Json run_random_graph(std::uint64_t seed, std::uint64_t which, const Backward& backward) {
  std::vector<Tensor> leaves, all;
  for (std::uint64_t i = 0; i < 4; ++i) leaves.push_back(random_leaf(seed, 10 + i));
  all = leaves;
  for (std::uint64_t i = 0; i < 24; ++i) {
    const Tensor& a = all[random_below(all.size(), seed + which, 1, i)];
    const Tensor& b = all[random_below(all.size(), seed + which, 2, i)];
    const std::uint64_t op = random_below(4, seed + which, 3, i);
    all.push_back(op == 0 ? a + b : op == 1 ? silu(a) * b : op == 2 ? a * 0.5 : first_of(a, b));
  }
  Tensor loss = sum(leaves[0]);
  for (std::size_t i = leaves.size(); i < all.size(); ++i) loss = loss + sum(all[i]);
  backward(loss, {});
  Json gradients = Json::array();
  for (const Tensor& each : leaves) gradients.push_back(numbers(each.grad()));
  return gradients;
}

// Three uses of w, one of v: the first, the middle and the last layer are tied.
Json run_tied_graph(std::uint64_t seed, const Backward& backward) {
  const Tensor w = random_leaf(seed, 30), v = random_leaf(seed, 31);
  Events events;
  events.watch_leaf("w", w), events.watch_leaf("v", v);
  backward(sum(silu(silu(silu(w * w) * v) * w)), {});
  return {{"events", events.all}, {"w", numbers(w.grad())}, {"v", numbers(v.grad())}};
}

// Four layers x (v w); then two branches, of which the second was recorded later.
Json run_layers(std::uint64_t seed, const Backward& backward) {
  Events events;
  std::vector<Tensor> v, w;
  for (std::uint64_t i = 0; i < 8; ++i) {
    v.push_back(random_leaf(seed, 40 + i)), w.push_back(random_leaf(seed, 50 + i));
    events.watch_leaf(fmt::format("{}.v", i), v.back());
    events.watch_leaf(fmt::format("{}.w", i), w.back());
  }
  const auto layer = [&](std::size_t i, const Tensor& x) {
    return events.watched(fmt::format("layer {}", i), silu(x * (v[i] * w[i])));
  };
  Tensor x = random_leaf(seed, 60);
  for (std::size_t i = 0; i < 4; ++i) x = layer(i, x);
  const Tensor left = layer(5, layer(4, x)), right = layer(7, layer(6, x));
  backward(sum(left + right), {});
  Json order = Json::array();
  for (const Json& each : events.all) order.push_back(each["what"]);
  return order;
}

// `add` gives one buffer to both of its inputs, and the seed belongs to the caller.
Json use_shared_memory(std::uint64_t random_seed, const Backward& backward,
                       const AccumulateGradient& accumulate) {
  const Tensor a = random_leaf(random_seed, 70), b = random_leaf(random_seed, 71);
  const Tensor seed = Tensor::full({3}, 1, DType::fp64);
  const Tensor left = a * 1.0, right = b * 1.0, more = left * 2.0;
  const Tensor loss = (left + right) + more;
  backward(loss, seed);
  Json seen = {{"a", numbers(a.grad())}, {"b", numbers(b.grad())}, {"seed", numbers(seed)}};
  try {
    backward(loss, seed);
    seen["second backward"] = "returned";
  } catch (const Error&) {
    seen["second backward"] = "threw";
  }
  // A leaf's gradient: from memory that the caller still holds, and into a view of a bucket.
  const Tensor gradient = Tensor::full({3}, 5, DType::fp64), held = gradient.detach();
  const Tensor c = random_leaf(random_seed, 72), d = random_leaf(random_seed, 73);
  accumulate(c, gradient);
  accumulate(c, gradient);
  seen["c"] = numbers(c.grad()), seen["gradient"] = numbers(gradient);
  const Tensor bucket = Tensor::full({3}, 1, DType::fp64);
  d.set_grad(bucket);
  accumulate(d, gradient);
  seen["bucket"] = numbers(bucket);
  return seen;
}

}  // namespace ringside::exercises
