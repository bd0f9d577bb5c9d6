// Judges linear layers divided over ranks: numbers against a single process in fp64, and the calls
// and bytes of a feed-forward block.
#include <utility>

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "exercises/24-tp-linear/interface.hpp"
#include "exercises/judge/collectives/recorded_calls.hpp"
#include "exercises/judge/tensor_parallel/divided_layer.hpp"
#include "exercises/judge/tensor_parallel/divided_tensors.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

template <bool with_bias>
Json collect_layers(World& world) {
  Json seen;
  for (const bool column : {true, false}) {
    const DividedLayer layer(world.size(), column, with_bias, world.seed());
    world.doing(layer.name());
    const LayerResults results = run_layer(
        layer, world.size(), world.rank(), [&](const Tensor& x, const Tensor& w, const Tensor& b) {
          return column ? student_column_linear(x, w, b, world.group(), "fc1")
                        : student_row_linear(x, w, b, world.group(), "fc2");
        });
    seen[layer.name()] = {{"y", values(results.y)},
                          {"dx", values(results.dx)},
                          {"dW", values(results.dW)},
                          {"db", values(results.db)}};
  }
  return seen;
}

template <bool with_bias>
Verdict judge_layers(const Run& run) {
  const int p = run.world;
  for (const bool column : {true, false}) {
    const DividedLayer layer(p, column, with_bias, run.seed);
    const auto single = [](const Tensor& x, const Tensor& w, const Tensor& b) {
      return linear(x, w, b);
    };
    const LayerResults whole = run_layer(layer, 1, 0, single);
    for (int rank = 0; rank < p; ++rank) {
      const LayerResults alone = run_layer(layer, p, rank, single);
      const Json& seen = run.ranks[rank].at(layer.name());
      const auto fault = [&](const char* what, const Tensor& expected, const Tensor& by_itself) {
        return fault_of(what, seen.at(what), values(expected), values(by_itself), p);
      };
      for (const std::string& found :
           {fault("y", column ? part(whole.y, 2, p, rank) : whole.y, alone.y),
            fault("dx", column ? whole.dx : part(whole.dx, 2, p, rank), alone.dx),
            fault("dW", part(whole.dW, column ? 0 : 1, p, rank), alone.dW),
            fault("db", column ? part(whole.db, 0, p, rank) : whole.db, alone.db)})
        if (!found.empty()) return {{fmt::format("{}, rank {}: {}", layer.name(), rank, found)}};
    }
  }
  return {};
}

// ---- How a tensor is divided ----

Json collect_parts(World& world) {
  const DividedLayer layer(world.size(), true, false, world.seed());
  Json parts = Json::array();
  for (const std::int64_t dimension : {0, 1})
    parts.push_back(values(student_part_of(layer.weight, dimension, world.group())));
  return parts;
}

Verdict judge_parts(const Run& run) {
  const DividedLayer layer(run.world, true, false, run.seed);
  return first_fault(run, [&](int rank, const Json& parts) -> std::string {
    for (const std::int64_t dimension : {0, 1}) {
      const Tensor expected = part(layer.weight, dimension, run.world, rank);
      const std::vector<double> seen = parts.at(dimension);
      if (seen != values(expected))
        return fmt::format(
            "part_of(W {}, {}) has {} numbers from {:.4g} on, expected {} of {} {}: "
            "{} numbers from {:.4g} on",
            to_string(layer.weight.shape()), dimension, seen.size(), seen.empty() ? 0 : seen[0],
            expected.size(dimension), layer.weight.size(dimension),
            dimension == 0 ? "rows" : "columns", expected.elements(), values(expected)[0]);
    }
    return "";
  });
}

// ---- A feed-forward block: x -> column -> relu -> row ----

constexpr std::int64_t tokens = 6;
std::int64_t width(int ranks) {
  return 16 * ranks;
}

Json collect_block(World& world) {
  const std::int64_t d = width(world.size()), inner = 2;  // of one rank
  world.doing("a feed-forward block: column_linear, relu, row_linear");
  const auto leaf = [&](Shape shape, std::string_view name) {
    return numbers(std::move(shape), world.seed(), name).set_requires_grad(true);
  };
  const Tensor x = leaf({tokens, d}, "x"), up = leaf({inner, d}, "up"),
               down = leaf({d, inner}, "down");
  Tensor y;
  const Json forward = calls_of(world, [&] {
    const Tensor h = relu(student_column_linear(x, up, {}, world.group(), "fc1"));
    y = student_row_linear(h, down, {}, world.group(), "fc2");
  });
  const Json way_back = calls_of(world, [&] {
    backward(y, numbers({tokens, d}, world.seed(), "dy"));
  });
  return {{"forward", forward}, {"backward", way_back}};
}

Verdict judge_calls(const Run& run) {
  const std::pair<const char*, std::string> passes[] = {
      {"forward", "all_reduce of fc2"}, {"backward", "all_reduce of gradient of fc1"}};
  return first_fault(run, [&](int, const Json& seen) -> std::string {
    for (const auto& [pass, call] : passes)
      if (const std::string found = difference_of_calls(seen.at(pass), {call}); !found.empty())
        return fmt::format("{} of the block: {}", pass, found);
    return "";
  });
}

// In each direction the ring's 2 (t-1)/t of the tensor [tokens, d], from every rank.
Verdict judge_bytes(const Run& run) {
  const auto t = static_cast<std::uint64_t>(run.world),
             whole = static_cast<std::uint64_t>(tokens * width(run.world)) * sizeof(double),
             expected = 2 * (t - 1) * whole / t;
  return first_fault(run, [&](int, const Json& seen) -> std::string {
    for (const char* pass : {"forward", "backward"})
      if (const std::uint64_t sent = seen.at(pass).at("sent"); sent != expected)
        return fmt::format(
            "{} of the block: sent {} bytes, expected {}: 2 (t-1)/t of [{}, {}] in "
            "fp64, with t = {}",
            pass, sent, expected, tokens, width(run.world), t);
    return "";
  });
}

const Judge judge("24-tp-linear", {{"values", collect_layers<false>, judge_layers<false>},
                                   {"bias", collect_layers<true>, judge_layers<true>},
                                   {"parts", collect_parts, judge_parts},
                                   {"calls", collect_block, judge_calls},
                                   {"bytes", collect_block, judge_bytes}});

}  // namespace
}  // namespace ringside::exercises
