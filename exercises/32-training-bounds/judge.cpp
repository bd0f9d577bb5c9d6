// Judges the times of a training step on many devices, and the bounds that follow from them.
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "exercises/32-training-bounds/interface.hpp"
#include "exercises/32-training-bounds/reference/training_bounds.hpp"
#include "exercises/judge/program.hpp"

template <>
struct ringside::JsonForm<ringside::bounds::Block> {
  static Json to_json(const bounds::Block& block) { return {{"D", block.d}, {"F", block.f}}; }
};

template <>
struct ringside::JsonForm<ringside::bounds::Machine> {
  static Json to_json(const bounds::Machine& machine) {
    return {{"C", machine.flops}, {"W", machine.bandwidth}};
  }
};

template <>
struct ringside::JsonForm<ringside::bounds::Step> {
  static bounds::Step from_json(const Json& json) {
    const auto pass = [&](const char* name) {
      return bounds::Pass{json.at(name).at("compute"), json.at(name).at("communicate")};
    };
    return {pass("forward"), pass("backward")};
  }
};

template <>
struct ringside::JsonForm<ringside::bounds::Split> {
  static bounds::Split from_json(const Json& json) { return {json.at("Y"), json.at("B/N")}; }
};

namespace ringside::exercises {
namespace {

using bounds::Block;
using bounds::Machine;
using bounds::Pass;
using bounds::Split;
using bounds::Step;

struct Problem {
  Block block;
  Machine machine;
  double batch = 0, devices = 0;
};

// Llama 3 8B on H100s with NVLink, XXL on TPU v5p, and ten of the student's own.
std::vector<Problem> problems(std::uint64_t seed) {
  std::vector<Problem> all = {{{4096, 14336}, {9.89e14, 9e11}, 16384, 16},
                              {{16384, 53248}, {4.6e14, 1.8e11}, 65536, 64}};
  for (std::uint64_t i = 0; i < 10; ++i) {
    const auto number = [&](std::uint64_t which, double least, double most) {
      return std::round(least * std::pow(most / least, random_uniform(seed, which, i)));
    };
    all.push_back({{128 * number(1, 4, 128), 128 * number(2, 16, 512)},
                   {1e12 * number(3, 50, 2000), 1e9 * number(4, 50, 2000)},
                   1024 * number(5, 4, 512),
                   number(6, 2, 256)});
  }
  return all;
}

std::string described(const Problem& problem) {
  return fmt::format("D = {}, F = {}, C = {:g}, W = {:g}", problem.block.d, problem.block.f,
                     problem.machine.flops, problem.machine.bandwidth);
}

// `seen` against a right number, or "". Not a number and infinity are null in JSON.
std::string difference(const std::string& what, const Json& seen, double right, const char* unit) {
  if (!seen.is_null() && std::abs(seen.get<double>() - right) <= 1e-9 * std::abs(right)) return "";
  if (seen.is_null()) return what + " is not a finite number";
  const auto value = seen.get<double>();
  return fmt::format("{} is {:.4g}{}, expected {:.4g}{}{}", what, value, unit, right, unit,
                     right == 0 ? "" : fmt::format(": {:.4g} times as much", value / right));
}

// ---- Times ----

using Reference = Step (*)(Block block, Machine machine, double batch, double devices);

Json json_of(const Step& step) {
  return {step.forward.compute, step.forward.communicate, step.backward.compute,
          step.backward.communicate};
}

Json steps_of(std::uint64_t seed, const StepOf& student) {
  Json all = Json::array();
  for (const Problem& each : problems(seed))
    all.push_back(json_of(student(each.block, each.machine, each.batch, each.devices)));
  return all;
}

std::string fault_of_steps(const Run& run, const Json& seen, const char* name,
                           const Reference& reference) {
  constexpr std::array parts = {"forward: computing", "forward: communication",
                                "backward: computing", "backward: communication"};
  std::size_t at = 0;
  for (const Problem& each : problems(run.seed)) {
    const Json& step = seen.at(at++);
    const Json right = json_of(reference(each.block, each.machine, each.batch, each.devices));
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const Json ms = step[part].is_null() ? Json() : Json(1e3 * step[part].get<double>());
      if (const std::string fault =
              difference(parts[part], ms, 1e3 * right[part].get<double>(), " ms");
          !fault.empty())
        return fmt::format("{}, {}, B = {}, N = {}: {}", name, described(each), each.batch,
                           each.devices, fault);
    }
  }
  return "";
}

Verdict verdict(const std::string& fault) {
  return fault.empty() ? Verdict{} : Verdict{{fault}};
}

Json collect_data_parallel(World& world) {
  return {{"data parallel", steps_of(world.seed(), student_data_parallel)},
          {"FSDP", steps_of(world.seed(), student_fully_sharded)}};
}

Verdict judge_data_parallel(const Run& run) {
  const Json& seen = run.ranks[0];
  const std::string fault =
      fault_of_steps(run, seen["data parallel"], "data parallel", bounds::data_parallel);
  return verdict(fault.empty() ? fault_of_steps(run, seen["FSDP"], "FSDP", bounds::fully_sharded)
                               : fault);
}

Json collect_tensor(World& world) {
  return steps_of(world.seed(), student_tensor_parallel);
}

Verdict judge_tensor(const Run& run) {
  return verdict(fault_of_steps(run, run.ranks[0], "tensor parallel", bounds::tensor_parallel));
}

// ---- Bounds ----

Json collect_bounds(World& world) {
  Json all = Json::array();
  for (const Problem& each : problems(world.seed()))
    all.push_back(
        {student_least_tokens(each.machine), student_most_devices(each.block, each.machine)});
  return all;
}

Verdict judge_bounds(const Run& run) {
  std::size_t at = 0;
  for (const Problem& each : problems(run.seed)) {
    const Json& seen = run.ranks[0].at(at++);
    std::string fault = difference("least_tokens", seen[0], bounds::least_tokens(each.machine), "");
    if (fault.empty())
      fault =
          difference("most_devices", seen[1], bounds::most_devices(each.block, each.machine), "");
    if (!fault.empty()) return {{fmt::format("{}: {}", described(each), fault)}};
  }
  return {};
}

Json collect_split(World& world) {
  Json all = Json::array();
  for (const Problem& each : problems(world.seed()))
    for (const bool overlapped : {true, false}) {
      const Split split = student_best_split(each.block, each.machine, overlapped);
      all.push_back({split.tensor, split.tokens});
    }
  return all;
}

Verdict judge_split(const Run& run) {
  std::size_t at = 0;
  for (const Problem& each : problems(run.seed))
    for (const bool overlapped : {true, false}) {
      const Json& seen = run.ranks[0].at(at++);
      const Split right = bounds::best_split(each.block, each.machine, overlapped);
      std::string fault = difference("Y", seen[0], right.tensor, "");
      if (fault.empty()) fault = difference("B/N", seen[1], right.tokens, " tokens");
      if (!fault.empty())
        return {{fmt::format("{}, {}: {}", described(each), overlapped ? "overlapped" : "added",
                             fault)}};
    }
  return {};
}

void by_program() {
  answer_by_program(student_data_parallel, "data_parallel");
  answer_by_program(student_fully_sharded, "fully_sharded");
  answer_by_program(student_tensor_parallel, "tensor_parallel");
  answer_by_program(student_least_tokens, "least_tokens");
  answer_by_program(student_most_devices, "most_devices");
  answer_by_program(student_best_split, "best_split");
}

const Judge judge("32-training-bounds",
                  {{"data-parallel", collect_data_parallel, judge_data_parallel},
                   {"tensor", collect_tensor, judge_tensor},
                   {"bounds", collect_bounds, judge_bounds},
                   {"split", collect_split, judge_split}},
                  by_program);

}  // namespace
}  // namespace ringside::exercises
