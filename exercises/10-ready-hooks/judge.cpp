// Judges an engine of backward: its sums, and the order in which nodes and hooks run. The ops and
// their nodes are Ringside's; the student's engine runs them.
#include <cmath>

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "exercises/10-ready-hooks/interface.hpp"
#include "exercises/judge/autograd/engine_graphs.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

const Backward reference = [](const Tensor& loss, const Tensor& seed) { backward(loss, seed); };

// ---- Sums

constexpr std::uint64_t graphs = 20;

Json collect_sums(World& world) {
  Json seen = Json::array();
  for (std::uint64_t k = 0; k < graphs; ++k) {
    world.doing(fmt::format("backward through random graph {}", k));
    seen.push_back(run_random_graph(world.seed(), k, student_backward));
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

// ---- Events

Verdict judge_tied(const Run& run) {
  const Json &seen = run.ranks[0], expected = run_tied_graph(run.seed, reference);
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

Verdict judge_order(const Run& run) {
  const Json &seen = run.ranks[0], expected = run_layers(run.seed, reference);
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
  const Tensor x = random_leaf(world.seed(), 61, 1);
  Tensor y = x;
  for (int i = 0; i < deep; ++i) y = y * (i % 2 == 0 ? 2.0 : 0.5);
  world.doing(fmt::format("backward through {} nodes, one after the other", deep));
  student_backward(y, {});
  return numbers(x.grad());
}

Verdict judge_deep(const Run& run) {
  if (run.ranks[0] == Json({1.0})) return {};
  return {{fmt::format("the gradient through {} nodes is {}, expected [1.0]", deep,
                       run.ranks[0].dump())}};
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
  return run_tied_graph(world.seed(), student_backward);
}
Json collect_shared(World& world) {
  return use_shared_memory(world.seed(), student_backward, student_accumulate_gradient);
}
Json collect_order(World& world) {
  return run_layers(world.seed(), student_backward);
}

const Judge judge("10-ready-hooks", {{"sums", collect_sums, judge_sums},
                                     {"tied", collect_tied, judge_tied},
                                     {"order", collect_order, judge_order},
                                     {"deep", collect_deep, judge_deep},
                                     {"shared", collect_shared, judge_shared}});

}  // namespace
}  // namespace ringside::exercises
