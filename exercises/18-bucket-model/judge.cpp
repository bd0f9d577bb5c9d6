// Judges a model of buckets: the time that it predicts, and the best size of a bucket, which a
// search finds without the formula.
#include <cmath>

#include "base/random.hpp"
#include "ddp/bucket_sizes/bucket_model.hpp"
#include "exercises/18-bucket-model/interface.hpp"
#include "exercises/judge/program.hpp"

namespace ringside::exercises {
namespace {

struct Point {
  ddp::BucketModel model;
  double total_bytes = 0, buckets = 1;
  std::string text() const {
    return fmt::format("s = {:.4g} MB, o = {:.4g} us, w = {:.4g} MB/s", total_bytes / 1e6,
                       model.overhead * 1e6, model.bandwidth / 1e6);
  }
};

// Between `low` and `high`, evenly on a logarithmic scale.
double between(double low, double high, std::uint64_t seed, std::uint64_t i, std::uint64_t which) {
  return low * std::pow(high / low, random_uniform(seed, 20 + which, i));
}

// A call costs 5 us to 0.5 ms, the network carries 0.1 to 10 GB/s; gradients of 20 MB to 2 GB. The
// best bucket is then always smaller than all gradients.
std::vector<Point> points(std::uint64_t seed) {
  std::vector<Point> all = {{{200e-6, 125e6}, 90e6, 1}, {{200e-6, 125e6}, 90e6, 90}};
  for (std::uint64_t i = 0; i < 18; ++i)
    all.push_back({{between(5e-6, 5e-4, seed, i, 0), between(1e8, 1e10, seed, i, 1)},
                   between(2e7, 2e9, seed, i, 2),
                   std::round(between(1, 1000, seed, i, 3))});
  return all;
}

// Calls that cost so much, or a model so small, that one call is the best; and calls for nothing.
std::vector<Point> extreme_points(std::uint64_t) {
  return {{{10, 125e6}, 90e6}, {{1e-3, 1e9}, 1e5}, {{0, 1e9}, 1e6}};
}

template <std::vector<Point> points(std::uint64_t)>
Json collect(World& world) {
  Json seen = Json::array();
  for (const Point& at : points(world.seed())) {
    const auto& [overhead, bandwidth] = at.model;
    seen.push_back(
        {{"exposed", student_exposed_seconds(overhead, bandwidth, at.total_bytes, at.buckets)},
         {"best", student_best_bucket_bytes(overhead, bandwidth, at.total_bytes)}});
  }
  return seen;
}

bool near(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

Verdict judge_formula(const Run& run) {
  const std::vector<Point> given = points(run.seed);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto& [model, total, buckets] = given[i];
    const double seen = run.ranks[0].at(i).at("exposed");
    const double expected = model.exposed_seconds(total, buckets);
    if (!near(seen, expected))
      return {{fmt::format("{}, {} bucket{}: exposed_seconds() is {:.6g} ms, expected {:.6g} ms",
                           given[i].text(), buckets, buckets == 1 ? "" : "s", seen * 1e3,
                           expected * 1e3)}};
  }
  return {};
}

double seconds_with(const Point& at, double bucket_bytes) {
  return at.model.exposed_seconds(at.total_bytes, at.total_bytes / bucket_bytes);
}

// The bucket size with the least exposed time, by trying 100 sizes for each factor of 10.
double searched(const Point& at) {
  double best = at.total_bytes;
  for (double size = at.total_bytes; size > 1; size *= std::pow(10, -0.01))
    if (seconds_with(at, size) < seconds_with(at, best)) best = size;
  return best;
}

Verdict judge_optimum(const Run& run) {
  const std::vector<Point> given = points(run.seed);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const double seen = run.ranks[0].at(i).at("best"), found = searched(given[i]);
    const double mine = seconds_with(given[i], seen), least = seconds_with(given[i], found);
    if (!(seen > 0 && mine <= least))
      return {{fmt::format(
          "{}: best_bucket_bytes() is {:.6g} bytes, which exposes {:.6g} ms; buckets of "
          "{:.4g} bytes expose {:.6g} ms",
          given[i].text(), seen, mine * 1e3, found, least * 1e3)}};
  }
  return {};
}

Verdict judge_limits(const Run& run) {
  const std::vector<Point> given = extreme_points(run.seed);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const double seen = run.ranks[0].at(i).at("best");
    const double expected = given[i].model.best_bucket_bytes(given[i].total_bytes);
    if (!near(seen, expected))
      return {{fmt::format("{}: best_bucket_bytes() is {:.6g} bytes, expected {:.6g} bytes: {}",
                           given[i].text(), seen, expected,
                           expected > 0 ? "a bucket holds at most all gradients"
                                        : "calls that cost nothing may be as many as you like")}};
  }
  return {};
}

void by_program() {
  answer_by_program(student_exposed_seconds, "exposed_seconds");
  answer_by_program(student_best_bucket_bytes, "best_bucket_bytes");
}

const Judge judge("18-bucket-model",
                  {{"formula", collect<points>, judge_formula},
                   {"optimum", collect<points>, judge_optimum},
                   {"limits", collect<extreme_points>, judge_limits}},
                  by_program);

}  // namespace
}  // namespace ringside::exercises
