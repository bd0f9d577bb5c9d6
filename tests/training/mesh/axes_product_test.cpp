// Every way to combine the axes, beside a single process in fp64: all pairs of two ranks each, all
// triples on 8 ranks, and four meshes of 16; with every data-parallel strategy that fits the mesh,
// with many and few key and value heads, with a tied and an untied head. Every gradient of each of
// 10 steps, clipped; norms, losses, parameters, a validation, and the bits of copies.
//
// With RINGSIDE_ALL_AXES=1. Otherwise a fixed sample: each mesh once, with a strategy and a
// model that change from mesh to mesh.
//
// The order of the axes, the schedule of a pipeline, the exchange of context parallel, and whether
// tensor ranks divide sequences and blocks are recomputed, rotate over the cases.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/error.hpp"
#include "tests/training/mesh/mesh_check.hpp"

using namespace ringside;
using namespace ringside::testing;
using context_parallel::Exchange;
using context_parallel::TokenOrder;

namespace {

using Axes = std::vector<Axis>;

const std::vector<context_parallel::ContextOptions> contexts = {
    {Exchange::ring, TokenOrder::zigzag},       {Exchange::all_gather, TokenOrder::contiguous},
    {Exchange::ulysses, TokenOrder::zigzag},    {Exchange::ring, TokenOrder::contiguous},
    {Exchange::all_gather, TokenOrder::zigzag}, {Exchange::ulysses, TokenOrder::contiguous}};

bool has(const Axes& axes, Axis axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// All sets of `count` axes, in the order of the table.
std::vector<Axes> sets_of(std::size_t count) {
  std::vector<Axes> sets;
  const std::size_t all = parallel::all_axes().size();
  for (std::size_t chosen = 0; chosen < (std::size_t{1} << all); ++chosen) {
    Axes axes;
    for (std::size_t i = 0; i < all; ++i)
      if ((chosen >> i & 1U) != 0) axes.push_back(parallel::all_axes()[i].axis);
    if (axes.size() == count) sets.push_back(axes);
  }
  return sets;
}

const std::vector<Axes> sixteen = {{Axis::pp, Axis::dp, Axis::cp, Axis::tp},
                                   {Axis::pp, Axis::fsdp, Axis::cp, Axis::ep},
                                   {Axis::dp, Axis::fsdp, Axis::tp, Axis::ep},
                                   {Axis::dp, Axis::fsdp, Axis::cp, Axis::tp}};

std::vector<std::string> strategies_for(const Axes& axes) {
  if (has(axes, Axis::fsdp)) return {"zero1", "zero2", "zero3"};
  // Over one rank all of them average nothing; these two still differ in where parameters lie.
  if (!has(axes, Axis::dp) && !has(axes, Axis::cp)) return {"bucketed", "zero3"};
  return {"naive", "flat", "overlap", "bucketed", "zero1", "zero2", "zero3"};
}

struct Case {
  Axes axes;
  Problem problem;
  MeshCase mesh;
};

// The case number `turn` of all: what rotates depends on it.
Case make_case(Axes axes, const std::string& strategy, std::int64_t kv_heads, bool tied,
               std::size_t turn) {
  Case each{axes, {}, {}};
  Problem& problem = each.problem;
  problem.layers = 4;
  problem.sequence = 24;
  problem.kv_heads = kv_heads;
  problem.tied = tied;
  problem.experts = has(axes, Axis::ep) ? 4 : 0;
  const transformer::RecomputeGroups groups[] = {{2, 0}, {3, 1}, {4, 2}, {1, 0}};
  if (turn % 4 == 1) problem.recompute = groups[turn / 4 % 4];
  if (turn % 2 == 1) std::reverse(axes.begin(), axes.end());
  std::string text;
  for (const Axis axis : axes)
    text += fmt::format("{}{}=2", text.empty() ? "" : ",", parallel::name_of(axis));
  MeshCase& mesh = each.mesh;
  mesh.mesh = text;
  mesh.inner = strategy;
  mesh.sequence_parallel = has(axes, Axis::tp) && problem.experts == 0 && turn % 3 != 0;
  mesh.context = contexts[turn % contexts.size()];
  const std::int64_t heads = has(axes, Axis::tp) ? kv_heads / 2 : kv_heads;
  if (heads % 2 != 0 && mesh.context.exchange == Exchange::ulysses)
    mesh.context.exchange = Exchange::ring;
  std::size_t schedule = turn + turn / schedules.size();
  do mesh.schedule = schedules[schedule++ % schedules.size()];
  while ((problem.accumulate = micro_batches_for(mesh.schedule, parallel::MeshShape(text))) == 0);
  return each;
}

std::vector<Case> all_cases(const std::vector<Axes>& sets) {
  std::vector<Case> cases;
  for (const std::int64_t kv_heads : {12, 2})
    for (const bool tied : {false, true})
      for (const Axes& axes : sets)
        for (const std::string& strategy : strategies_for(axes))
          cases.push_back(make_case(axes, strategy, kv_heads, tied, cases.size()));
  return cases;
}

// Each mesh once. Mesh number i takes its case number 5 i of those that it has, counted round: 5
// has no divisor in common with 4 models times 2, 3 or 7 strategies.
std::vector<Case> sample(const std::vector<Axes>& sets) {
  const std::vector<Case> all = all_cases(sets);
  std::vector<Case> cases;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    std::vector<Case> own;
    for (const Case& each : all)
      if (each.axes == sets[i]) own.push_back(each);
    cases.push_back(own[5 * i % own.size()]);
  }
  return cases;
}

void check_sets(const std::vector<Axes>& sets) {
  const bool whole = std::getenv("RINGSIDE_ALL_AXES") != nullptr;
  const std::vector<Case> cases = whole ? all_cases(sets) : sample(sets);
  for (const Case& each : cases) check(each.problem, each.mesh, 1e-12);
  MESSAGE(fmt::format("{} cases on {} meshes of {} ranks", cases.size(), sets.size(),
                      cases.front().mesh.plan().shape.ranks()));
}

}  // namespace

TEST_CASE("axes: the sample has every strategy, model, schedule and exchange") {
  std::set<std::string> strategies, of_pipelines;
  std::set<std::pair<std::int64_t, bool>> models;
  std::set<std::pair<Exchange, TokenOrder>> exchanges;
  std::size_t cases = 0;
  for (const auto& sets : {sets_of(2), sets_of(3), sixteen})
    for (const Case& each : sample(sets)) {
      ++cases;
      strategies.insert(each.mesh.inner);
      models.emplace(each.problem.kv_heads, each.problem.tied);
      if (has(each.axes, Axis::pp)) of_pipelines.insert(each.mesh.schedule);
      if (has(each.axes, Axis::cp))
        exchanges.emplace(each.mesh.context.exchange, each.mesh.context.order);
    }
  CHECK(cases == 15 + 20 + 4);
  CHECK(strategies.size() == 7);
  CHECK(models.size() == 4);
  CHECK(of_pipelines.size() == schedules.size());
  CHECK(exchanges.size() == contexts.size());
}

TEST_CASE("axes, fp64: every gradient on every pair of axes") {
  check_sets(sets_of(2));
}

TEST_CASE("axes, fp64: every gradient on every triple of axes, 8 ranks") {
  check_sets(sets_of(3));
}

TEST_CASE("axes, fp64: every gradient on four meshes of 16 ranks") {
  check_sets(sixteen);
}
