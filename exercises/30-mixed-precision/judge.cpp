// Judges mixed precision: sums bit by bit, the scale of a loss over many steps, and the types of
// the results in a block of a transformer.
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.hpp"
#include "exercises/30-mixed-precision/interface.hpp"
#include "exercises/30-mixed-precision/reference/mixed_precision.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {
namespace {

constexpr Type types[] = {Type::fp32, Type::bf16, Type::fp16};

const char* name_of(Type type) {
  const char* const names[] = {"fp32", "bf16", "fp16"};
  return names[static_cast<int>(type)];
}

// ---- Sums: 1000 times 0.01, and numbers of the student's own ----

std::vector<std::vector<float>> terms_of_sums(std::uint64_t seed) {
  std::vector<std::vector<float>> all = {std::vector<float>(1000, 0.01f), std::vector<float>(1000)};
  for (std::size_t i = 0; i < all[1].size(); ++i)
    all[1][i] = static_cast<float>(random_uniform(seed, 40, i) * 3 - 1);
  return all;
}

Json collect_sums(World& world) {
  Json sums = Json::array();
  for (const auto& values : terms_of_sums(world.seed()))
    for (const Type terms : types)
      for (const Type sum_in : types) sums.push_back(student_accumulated(values, terms, sum_in));
  return sums;
}

Verdict judge_sums(const Run& run) {
  std::size_t at = 0;
  for (const auto& values : terms_of_sums(run.seed))
    for (const Type terms : types)
      for (const Type sum_in : types) {
        // Not a number and infinity are null in JSON, and no right sum here.
        const Json& seen = run.ranks[0].at(at++);
        const float expected = precision::accumulated(values, terms, sum_in);
        if (seen.is_null() || seen.get<float>() != expected)
          return {{fmt::format(
              "{}, {} terms, sum in {}: {}, expected {}",
              values[0] == 0.01f ? "1000 times 0.01" : "1000 numbers", name_of(terms),
              name_of(sum_in),
              seen.is_null() ? "not a finite number" : fmt::format("{:.7g}", seen.get<float>()),
              fmt::format("{:.7g}", expected))}};
      }
  return {};
}

// ---- The largest scale ----

std::vector<std::vector<float>> gradients_to_scale(std::uint64_t seed) {
  std::vector<std::vector<float>> all = {
      {1}, {-1.5f, 0}, {1.99951171875f}, {1.9999f, 1e-8f}, {3e-7f, -2e-9f}, {65504}, {65505}};
  for (std::uint64_t which = 0; which < 20; ++which) {
    std::vector<float>& gradients = all.emplace_back();
    const double size = std::pow(10, -8 * random_uniform(seed, 41, which));
    for (std::uint64_t i = 0; i < 8; ++i)
      gradients.push_back(static_cast<float>(size * (2 * random_uniform(seed, 50 + which, i) - 1)));
  }
  return all;
}

Json collect_scales(World& world) {
  Json scales = Json::array();
  for (const auto& gradients : gradients_to_scale(world.seed()))
    scales.push_back(student_largest_scale(gradients));
  return scales;
}

Verdict judge_scales(const Run& run) {
  std::size_t at = 0;
  for (const auto& gradients : gradients_to_scale(run.seed)) {
    const Json& seen = run.ranks[0].at(at++);
    const float expected = precision::largest_scale(gradients);
    float largest = 0;
    for (const float gradient : gradients) largest = std::max(largest, std::abs(gradient));
    if (seen.is_null() || seen.get<float>() != expected)
      return {{fmt::format(
          "the largest of {} gradients is {:.7g}: scale {}, expected {:.7g}, which makes it {:.7g}",
          gradients.size(), largest,
          seen.is_null() ? "that is not finite" : fmt::format("{:.7g}", seen.get<float>()),
          expected, largest * expected)}};
  }
  return {};
}

// ---- 200 steps ----

constexpr int steps = 200, interval = 5;

// Three gradients of one step, times the scale: finite but in some steps.
std::vector<float> gradients_of(std::uint64_t seed, int step, float scale) {
  std::vector<float> gradients;
  const auto counter = static_cast<std::uint64_t>(step);
  for (std::uint64_t i = 0; i < 3; ++i)
    gradients.push_back(static_cast<float>(random_uniform(seed, 70 + i, counter) - 0.5) * scale);
  // The last one, so that code that divides as it looks has changed the others already.
  if (step == 7 || random_uniform(seed, 80, counter) < 0.08)
    gradients[2] = step % 2 == 0 ? std::numeric_limits<float>::quiet_NaN()
                                 : std::numeric_limits<float>::infinity();
  return gradients;
}

template <class Unscaled>
Json taken_steps(std::uint64_t seed, const Unscaled& unscaled) {
  Json all = Json::array();
  LossScale state{.scale = 1024, .good_steps = 0, .interval = interval};
  for (int step = 0; step < steps; ++step) {
    std::vector<float> gradients = gradients_of(seed, step, state.scale);
    const bool takes = unscaled(std::span<float>(gradients), state);
    all.push_back({{"takes", takes}, {"gradients", gradients}, {"scale", state.scale}});
  }
  return all;
}

Json collect_steps(World& world) {
  return taken_steps(world.seed(), [](std::span<float> gradients, LossScale& state) {
    return student_unscaled(gradients, state);
  });
}

Verdict judge_steps(const Run& run) {
  // dump() and parse() turn infinities and NaN into null, as in what the rank wrote.
  const Json expected = Json::parse(taken_steps(run.seed, precision::unscaled).dump());
  for (std::size_t step = 0; step < expected.size(); ++step) {
    const Json& seen = run.ranks[0].at(step);
    const Json& right = expected[step];
    const char* const taken[] = {"is skipped", "is taken"};
    if (seen["takes"] != right["takes"])
      return {{fmt::format("step {} {}, but its gradients are {}", step,
                           taken[seen["takes"].get<bool>()],
                           right["takes"].get<bool>() ? "finite" : "not all finite")}};
    if (seen["gradients"] != right["gradients"])
      return {{fmt::format("step {}, which {}: the gradients are {}, expected {}", step,
                           taken[right["takes"].get<bool>()], seen["gradients"].dump(),
                           right["gradients"].dump())}};
    if (seen["scale"] != right["scale"])
      return {{fmt::format("after step {}, which {}, the scale is {}, expected {}", step,
                           taken[right["takes"].get<bool>()], seen["scale"].dump(),
                           right["scale"].dump())}};
  }
  return {};
}

// ---- A block of a transformer and its loss ----

struct Result {
  const char* name;
  Operation operation;
  std::vector<int> inputs;  // results before it; -1: the embedding, in fp32
};

const std::vector<Result>& results() {
  static const std::vector<Result> all = {{"norm", Operation::norm, {-1}},
                                          {"queries", Operation::linear, {0}},
                                          {"weights of attention", Operation::softmax, {1}},
                                          {"output of attention", Operation::linear, {2}},
                                          {"first sum", Operation::add, {-1, 3}},
                                          {"second norm", Operation::norm, {4}},
                                          {"first matrix", Operation::linear, {5}},
                                          {"GELU", Operation::activation, {6}},
                                          {"second matrix", Operation::linear, {7}},
                                          {"sum of both matrices", Operation::add, {6, 8}},
                                          {"GELU of the norm", Operation::activation, {5}},
                                          {"second sum", Operation::add, {8, 4}},
                                          {"logits", Operation::linear, {11}},
                                          {"loss", Operation::loss, {12}}};
  return all;
}

// The type of each result, where `result_type` says what an operation makes of its inputs.
template <class ResultType>
std::vector<int> types_of(Type low, const ResultType& result_type) {
  std::vector<Type> seen;
  std::vector<int> numbers;
  for (const Result& result : results()) {
    std::vector<Type> inputs;
    for (const int input : result.inputs)
      inputs.push_back(input < 0 ? Type::fp32 : seen[static_cast<std::size_t>(input)]);
    seen.push_back(result_type(result.operation, std::span<const Type>(inputs), low));
    numbers.push_back(static_cast<int>(seen.back()));
  }
  return numbers;
}

Json collect_types(World&) {
  Json all = Json::array();
  for (const Type low : {Type::bf16, Type::fp16})
    all.push_back(types_of(low, [](Operation operation, std::span<const Type> inputs, Type to) {
      return student_result_type(operation, inputs, to);
    }));
  return all;
}

Verdict judge_types(const Run& run) {
  for (const Type low : {Type::bf16, Type::fp16}) {
    const std::vector<int> expected = types_of(low, precision::result_type);
    const std::vector<int> seen = run.ranks[0].at(low == Type::bf16 ? 0 : 1);
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (seen[i] != expected[i])
        return {
            {fmt::format("autocast to {}: {} is {}, expected {}", name_of(low), results()[i].name,
                         seen[i] >= 0 && seen[i] < 3 ? name_of(types[seen[i]]) : "no type",
                         name_of(types[expected[i]]))}};
  }
  return {};
}

const Judge judge("30-mixed-precision", {{"sums", collect_sums, judge_sums},
                                         {"scale", collect_scales, judge_scales},
                                         {"steps", collect_steps, judge_steps},
                                         {"autocast", collect_types, judge_types}});

}  // namespace
}  // namespace ringside::exercises
