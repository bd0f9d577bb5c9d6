// Judges a plan of buckets: which parameters share a bucket, and where they begin in it.
#include <set>

#include "base/random.hpp"
#include "ddp/buckets.hpp"
#include "exercises/16-bucket-plan/interface.hpp"
#include "exercises/judge/program.hpp"

template <>
struct ringside::JsonForm<ringside::autograd::NamedTensor> {
  static Json to_json(const autograd::NamedTensor& parameter) {
    return {{"name", parameter.name},
            {"elements", parameter.tensor.elements()},
            {"type", autograd::name_of(parameter.tensor.dtype())}};
  }
};

namespace ringside::exercises {
namespace {

using namespace autograd;

struct Problem {
  std::vector<NamedTensor> parameters;
  std::size_t limit = 0, first_limit = 0;
  std::vector<std::string> alone;  // names of parameters that share no bucket
};

// Parameters p0, p1, ... of these lengths, of fp32; those in `wide` of fp64.
Problem problem(const std::vector<std::int64_t>& lengths, std::size_t limit,
                std::size_t first_limit, const std::set<int>& wide = {}) {
  Problem made{{}, limit, first_limit, {}};
  for (int i = 0; i < static_cast<int>(lengths.size()); ++i)
    made.parameters.push_back(
        {fmt::format("p{}", i), Tensor::zeros({lengths[static_cast<std::size_t>(i)]},
                                              wide.contains(i) ? DType::fp64 : DType::fp32)});
  return made;
}

std::vector<Problem> exact_problems(std::uint64_t seed) {
  std::vector<Problem> problems = {
      problem({100, 100, 100, 25, 25}, 800, 200), problem({100, 100, 100, 25, 25}, 1, 1),
      problem({25, 1000, 25, 25}, 400, 100), problem({250000, 10000, 250000}, 1000000, 1000000)};
  for (std::uint64_t k = 0; k < 20; ++k) {
    std::vector<std::int64_t> lengths;
    for (std::uint64_t i = 0; i < 3 + k % 9; ++i)
      lengths.push_back(1 + static_cast<std::int64_t>(random_below(60, seed, k, i)));
    problems.push_back(problem(lengths, 100 + random_below(400, seed, k, 100),
                               20 + random_below(200, seed, k, 101)));
  }
  problems.push_back(problem({50, 50, 50}, 1000, 1000));
  problems.back().alone = {"p1"};
  return problems;
}

std::vector<Problem> mixed_problems(std::uint64_t) {
  return {problem({4, 4, 4}, 1000, 1000, {1, 2}), problem({4, 4, 4, 4}, 1000, 1000, {0, 2}),
          problem({4, 4, 4}, 40, 40, {0, 1, 2})};
}

using Problems = std::vector<Problem> (*)(std::uint64_t seed);

template <Problems problems>
Json collect(World& world) {
  Json plans = Json::array();
  for (const Problem& each : problems(world.seed()))
    plans.push_back(student_plan(each.parameters, each.limit, each.first_limit, each.alone));
  return plans;
}

// "p4@0 p3@25 | p2@0": the parameters of each bucket, and where they begin.
std::string text_of(const BucketPlan& plan) {
  std::string text;
  for (const auto& bucket : plan) {
    text += text.empty() ? "" : " | ";
    for (const auto& [name, begin] : bucket)
      text += fmt::format("{}{}@{}", &name == &bucket.front().first ? "" : " ", name, begin);
  }
  return text;
}

BucketPlan expected_of(const Problem& given) {
  BucketPlan plan;
  for (const auto& bucket :
       ddp::plan_buckets(given.parameters, given.limit, given.first_limit, {given.alone})) {
    auto& entries = plan.emplace_back();
    for (const auto& entry : bucket.entries)
      entries.emplace_back(entry.parameter.name, entry.begin);
  }
  return plan;
}

template <Problems problems>
Verdict judge_plans(const Run& run) {
  const std::vector<Problem> given = problems(run.seed);
  for (std::size_t k = 0; k < given.size(); ++k) {
    const BucketPlan seen = run.ranks[0].at(k), expected = expected_of(given[k]);
    if (seen == expected) continue;
    std::vector<std::string> sizes;
    for (const auto& [name, tensor] : given[k].parameters)
      sizes.push_back(
          fmt::format("{} {} B of {}", name,
                      tensor.elements() * static_cast<std::int64_t>(size_of(tensor.dtype())),
                      name_of(tensor.dtype())));
    return {{fmt::format("{}; at most {} B, in the first bucket {} B{}", fmt::join(sizes, ", "),
                         given[k].limit, given[k].first_limit,
                         given[k].alone.empty() ? "" : "; " + given[k].alone[0] + " stands alone"),
             "planned " + text_of(seen), "expected " + text_of(expected)}};
  }
  return {};
}

// Whatever the plan: every bucket holds a parameter, and every parameter is in one bucket.
Verdict judge_complete(const Run& run) {
  const std::vector<Problem> given = exact_problems(run.seed);
  for (std::size_t k = 0; k < given.size(); ++k) {
    std::multiset<std::string> seen;
    const BucketPlan plan = run.ranks[0].at(k);
    for (std::size_t b = 0; b < plan.size(); ++b) {
      if (plan[b].empty()) return {{fmt::format("bucket {} of {} is empty", b, plan.size())}};
      for (const auto& [name, begin] : plan[b]) seen.insert(name);
    }
    for (const auto& [name, tensor] : given[k].parameters)
      if (seen.count(name) != 1)
        return {{fmt::format("{} of {} parameters is in {} buckets, expected 1", name,
                             given[k].parameters.size(), seen.count(name))}};
  }
  return {};
}

void by_program() {
  answer_by_program(student_plan, "plan_buckets");
}

const Judge judge("16-bucket-plan",
                  {{"exact", collect<exact_problems>, judge_plans<exact_problems>},
                   {"types", collect<mixed_problems>, judge_plans<mixed_problems>},
                   {"complete", collect<exact_problems>, judge_complete}},
                  by_program);

}  // namespace
}  // namespace ringside::exercises
