// Judges an engine of backward: its sums, and the order in which nodes and hooks run. The ops and
// their nodes are Ringside's; the student's engine runs them.
#include "exercises/judge/judge.hpp"
#include "autograd/engine/engine.hpp"
#include "autograd/engine/node.hpp"
#include "autograd/ops/ops.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "exercises/10-ready-hooks/interface.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

using Backward = void(const Tensor& loss, const Tensor& seed);

void student(const Tensor& loss, const Tensor& seed) {
  student_backward(loss, seed);
}
void reference(const Tensor& loss, const Tensor& seed) {
  backward(loss, seed);
}

std::vector<double> numbers(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  const auto values = tensor.values<double>();
  return {values.begin(), values.end()};
}

Tensor leaf(std::uint64_t seed, std::uint64_t which, std::int64_t length = 3) {
  std::vector<double> values(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random_normal(seed, which, i);
  return Tensor::from(values, {length}).set_requires_grad(true);
}

// The op a + 0 b, whose backward gives no gradient for b.
Tensor first_of(const Tensor& a, const Tensor& b) {
  return record("first_of", a.clone(), {a, b}, [](const Node&, const Tensor& dy) -> Gradients {
    return {dy, Tensor()};
  });
}

// ---- Sums: a random graph, in which most results are used several times.

Json run_random_graph(std::uint64_t seed, std::uint64_t which, Backward& backward) {
  std::vector<Tensor> leaves, all;
  for (std::uint64_t i = 0; i < 4; ++i) leaves.push_back(leaf(seed, 10 + i));
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

constexpr std::uint64_t graphs = 20;

Json collect_sums(World& world) {
  Json seen = Json::array();
  for (std::uint64_t k = 0; k < graphs; ++k) {
    world.doing(fmt::format("backward through random graph {}", k));
    seen.push_back(run_random_graph(world.seed(), k, student));
  }
  return seen;
}

Verdict judge_sums(const Run& run) {
  for (std::uint64_t k = 0; k < graphs; ++k) {
    const Json expected = run_random_graph(run.seed, k, reference), &seen = run.ranks[0].at(k);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (seen.at(i).size() != expected[i].size())
        return {{fmt::format("random graph {}: leaf {} has {} gradient, expected {}", k, i,
                             seen[i].empty() ? "no" : "a", expected[i].empty() ? "none" : "one")}};
      for (std::size_t j = 0; j < expected[i].size(); ++j) {
        const double a = seen[i][j], b = expected[i][j];
        if (!(std::abs(a - b) <= 1e-9 * std::max(1.0, std::abs(b))))
          return {
              {fmt::format("random graph {}: the gradient of leaf {}[{}] is {:.6g}, expected "
                           "{:.6g}: every use of a result adds to its gradient",
                           k, i, j, a, b)}};
      }
    }
  }
  return {};
}

// ---- Events: when hooks run, and what a leaf's gradient is then.

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

// Three uses of w, one of v: the first, the middle and the last layer are tied.
Json run_tied(std::uint64_t seed, Backward& backward) {
  const Tensor w = leaf(seed, 30), v = leaf(seed, 31);
  Events events;
  events.watch_leaf("w", w), events.watch_leaf("v", v);
  backward(sum(silu(silu(silu(w * w) * v) * w)), {});
  return {{"events", events.all}, {"w", numbers(w.grad())}, {"v", numbers(v.grad())}};
}

Verdict judge_tied(const Run& run) {
  const Json &seen = run.ranks[0], expected = run_tied(run.seed, reference);
  for (const char* name : {"w", "v"}) {
    std::vector<Json> fired;
    for (const Json& each : seen.at("events"))
      if (each.at("what") == fmt::format("the hook of {}", name)) fired.push_back(each["gradient"]);
    if (fired.size() != 1)
      return {{fmt::format(
          "hook of {} fired {} times in one backward, expected once{}", name, fired.size(),
          fired.size() > 1 ? ", after its last use: the first time its gradient was "
                             "not complete"
                           : "")}};
    if (fired[0] != seen.at(name))
      return {{fmt::format("hook of {} fired before the gradient was complete", name)}};
  }
  for (const char* name : {"w", "v"})
    if (std::abs(seen.at(name).at(0).get<double>() - expected.at(name)[0].get<double>()) > 1e-9)
      return {{fmt::format("the gradient of {}[0] is {}, expected {}", name,
                           seen[name][0].get<double>(), expected[name][0].get<double>())}};
  return {};
}

// Four layers x (v w); then two branches, of which the second was recorded later.
Json run_order(std::uint64_t seed, Backward& backward) {
  Events events;
  std::vector<Tensor> v, w;
  for (std::uint64_t i = 0; i < 8; ++i) {
    v.push_back(leaf(seed, 40 + i)), w.push_back(leaf(seed, 50 + i));
    events.watch_leaf(fmt::format("{}.v", i), v.back());
    events.watch_leaf(fmt::format("{}.w", i), w.back());
  }
  const auto layer = [&](std::size_t i, const Tensor& x) {
    return events.watched(fmt::format("layer {}", i), silu(x * (v[i] * w[i])));
  };
  Tensor x = leaf(seed, 60);
  for (std::size_t i = 0; i < 4; ++i) x = layer(i, x);
  const Tensor left = layer(5, layer(4, x)), right = layer(7, layer(6, x));
  backward(sum(left + right), {});
  Json order = Json::array();
  for (const Json& each : events.all) order.push_back(each["what"]);
  return order;
}

Verdict judge_order(const Run& run) {
  const Json &seen = run.ranks[0], expected = run_order(run.seed, reference);
  for (std::size_t i = 0; i < std::min(seen.size(), expected.size()); ++i)
    if (seen[i] != expected[i])
      return {
          {fmt::format("event {}: {}; expected: {}", i, seen[i].get<std::string>(),
                       expected[i].get<std::string>()),
           "of the nodes that are ready a leaf runs first, then the op that was recorded last; of "
           "two leaves the one that became ready first"}};
  if (seen.size() != expected.size())
    return {{fmt::format("{} events, expected {}", seen.size(), expected.size())}};
  return {};
}

// ---- Deep graphs, and memory that others hold.

constexpr int deep = 100'000;

Json collect_deep(World& world) {
  const Tensor x = leaf(world.seed(), 61, 1);
  Tensor y = x;
  for (int i = 0; i < deep; ++i) y = y * (i % 2 == 0 ? 2.0 : 0.5);
  world.doing(fmt::format("backward through {} nodes, one after the other", deep));
  student(y, {});
  return numbers(x.grad());
}

Verdict judge_deep(const Run& run) {
  if (run.ranks[0] == Json({1.0})) return {};
  return {{fmt::format("the gradient through {} nodes is {}, expected [1.0]", deep,
                       run.ranks[0].dump())}};
}

// `add` gives one buffer to both of its inputs, and the seed belongs to the caller.
Json collect_shared(World& world) {
  const Tensor a = leaf(world.seed(), 70), b = leaf(world.seed(), 71);
  const Tensor seed = Tensor::full({3}, 1, DType::fp64);
  const Tensor left = a * 1.0, right = b * 1.0, more = left * 2.0;
  const Tensor loss = (left + right) + more;
  student(loss, seed);
  Json seen = {{"a", numbers(a.grad())}, {"b", numbers(b.grad())}, {"seed", numbers(seed)}};
  try {
    student(loss, seed);
    seen["second backward"] = "returned";
  } catch (const Error&) {
    seen["second backward"] = "threw";
  }
  // A leaf's gradient: from memory that the caller still holds, and into a view of a bucket.
  const Tensor gradient = Tensor::full({3}, 5, DType::fp64), held = gradient.detach();
  const Tensor c = leaf(world.seed(), 72), d = leaf(world.seed(), 73);
  student_accumulate_gradient(c, gradient);
  student_accumulate_gradient(c, gradient);
  seen["c"] = numbers(c.grad()), seen["gradient"] = numbers(gradient);
  const Tensor bucket = Tensor::full({3}, 1, DType::fp64);
  d.set_grad(bucket);
  student_accumulate_gradient(d, gradient);
  seen["bucket"] = numbers(bucket);
  return seen;
}

Verdict judge_shared(const Run& run) {
  const auto fault = [&](const char* name, double expected, const char* why) -> std::string {
    const Json& seen = run.ranks[0].at(name);
    if (seen == Json({expected, expected, expected})) return "";
    return fmt::format("{} is {}, expected {} in each place: {}", name, seen.dump(), expected, why);
  };
  const char* const shared =
      "add gives one buffer to both of its inputs, so nobody may write to it";
  std::vector<std::string> says;
  for (const std::string& each :
       {fault("seed", 1, "it belongs to the caller of backward"), fault("b", 1, shared),
        fault("a", 3, shared), fault("gradient", 5, "the caller still holds it"),
        fault("c", 10, "two gradients of 5 were added"),
        fault("bucket", 6, "a gradient that exists grows in place: it may be a view of a bucket")})
    if (!each.empty()) says.push_back(each);
  if (run.ranks[0].at("second backward") != "threw")
    says.push_back(
        "a second backward through the same graph returned: release each node after it "
        "has run, and refuse one that is released");
  return {says};
}

Json collect_tied(World& world) {
  return run_tied(world.seed(), student);
}
Json collect_order(World& world) {
  return run_order(world.seed(), student);
}

const Judge judge("10-ready-hooks", {{"sums", collect_sums, judge_sums},
                                     {"tied", collect_tied, judge_tied},
                                     {"order", collect_order, judge_order},
                                     {"deep", collect_deep, judge_deep},
                                     {"shared", collect_shared, judge_shared}});

}  // namespace
}  // namespace ringside::exercises
