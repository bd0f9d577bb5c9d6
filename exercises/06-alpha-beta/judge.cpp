// Judges a fit of o and w to measured all-reduces, and the bus bandwidth of a table.
#include <cmath>

#include "base/random.hpp"
#include "collectives/selection/bus_bandwidth.hpp"
#include "ddp/bucket_sizes/bucket_model.hpp"
#include "exercises/06-alpha-beta/interface.hpp"
#include "exercises/judge/program.hpp"

namespace ringside::exercises {
namespace {

using namespace collectives;

// Calls of a machine whose o and w are known.
struct Measured {
  double overhead = 0, bandwidth = 0;
  std::vector<std::pair<double, double>> calls;  // bytes, seconds
};

// Between `low` and `high`, evenly on a logarithmic scale.
double between(double low, double high, std::uint64_t seed, std::uint64_t k, std::uint64_t i) {
  return low * std::pow(high / low, random_uniform(seed, k, i));
}

// 20 machines: a call costs 20 us to 0.5 ms, and the network carries 1 to 10 GB/s. Ten sizes for
// each factor of 10 between 1 KB and 1 GB, whose times are wrong by `noise`. At least 13 of them
// cost less for their bytes than for the call, so that o can be found.
std::vector<Measured> machines(std::uint64_t seed, double noise) {
  std::vector<Measured> all;
  for (std::uint64_t k = 0; k < 20; ++k) {
    Measured machine{between(2e-5, 5e-4, seed, k, 0), between(1e9, 1e10, seed, k, 1), {}};
    for (std::uint64_t i = 0; i <= 60; ++i) {
      const double bytes = std::round(1e3 * std::pow(10, static_cast<double>(i) / 10));
      const double seconds = machine.overhead + bytes / machine.bandwidth;
      machine.calls.emplace_back(bytes, seconds * (1 + noise * random_normal(seed, k, 100 + i)));
    }
    all.push_back(std::move(machine));
  }
  return all;
}

constexpr double five_percent = 0.05, none = 0;

template <const double& noise>
Json collect_fits(World& world) {
  Json fits = Json::array();
  for (const Measured& each : machines(world.seed(), noise))
    fits.push_back(student_fit(each.calls));
  return fits;
}

bool within(double seen, double expected, double part) {
  return std::abs(seen - expected) <= part * expected;
}

// 10 % is twice the noise of a call. The fit is better than its calls: of 8000 such machines none
// was off by 5 %.
template <const double& noise>
Verdict judge_fits(const Run& run) {
  const std::vector<Measured> given = machines(run.seed, noise);
  for (std::size_t k = 0; k < given.size(); ++k) {
    const std::pair<double, double> seen = run.ranks[0].at(k);
    const auto& [overhead, bandwidth, calls] = given[k];
    const double part = noise > 0 ? 0.1 : 1e-9;
    if (!within(seen.first, overhead, part) || !within(seen.second, bandwidth, part))
      return {
          {fmt::format("machine {}, {} calls of 1 KB to 1 GB, noise of {} %: o is {:.4g} us and "
                       "w {:.4g} GB/s, expected {:.4g} us and {:.4g} GB/s",
                       k, calls.size(), noise * 100, seen.first * 1e6, seen.second / 1e9,
                       overhead * 1e6, bandwidth / 1e9)}};
  }
  return {};
}

// ---- What no line fits ----

// A line through these two calls is negative at 0 bytes.
const std::vector<std::pair<double, double>> below_zero = {{1e3, 0.5e-6}, {1e6, 1e-3}};
const std::vector<std::pair<double, double>> one_size = {{1e6, 1e-3}, {1e6, 2e-3}};

Json collect_limits(World&) {
  Json seen = {{"below zero", student_fit(below_zero)}};
  try {
    seen["one size"] = student_fit(one_size);
  } catch (const Error& error) {
    seen["one size"] = error.what();
  }
  return seen;
}

Verdict judge_limits(const Run& run) {
  const auto [o, w] = run.ranks[0].at("below zero").get<std::pair<double, double>>();
  const ddp::BucketModel expected = ddp::fit_bucket_model(below_zero);
  if (o != 0 || !within(w, expected.bandwidth, 1e-9))
    return {
        {fmt::format("1 KB in 0.5 us and 1 MB in 1 ms: o is {:.4g} us and w {:.6g} GB/s, expected "
                     "0 us, and the best w for it, {:.6g} GB/s; a line through both is below 0 us "
                     "at 0 bytes, but no call takes less than no time",
                     o * 1e6, w / 1e9, expected.bandwidth / 1e9)}};
  if (!run.ranks[0].at("one size").is_string())
    return {{"two calls of 1 MB: they do not tell o from w, expected an Error"}};
  return {};
}

// ---- A table ----

struct Row {
  Collective collective;
  int ranks;
  std::uint64_t count;  // of fp32
  double seconds;
  Call call() const { return {.collective = collective, .count = count, .label = {}}; }
};

// First what ringside bench all_reduce -n 2,4 --bytes 1MB,10MB,100MB measured over TCP on a busy
// machine with 2 cores; then other collectives.
const std::vector<Row> table = {{Collective::all_reduce, 2, 250'000, 550.21e-6},
                                {Collective::all_reduce, 2, 2'500'000, 37829e-6},
                                {Collective::all_reduce, 2, 25'000'000, 633871e-6},
                                {Collective::all_reduce, 4, 250'000, 31629e-6},
                                {Collective::all_reduce, 4, 2'500'000, 273864e-6},
                                {Collective::all_gather, 4, 2'500'000, 10e-3},
                                {Collective::reduce_scatter, 3, 2'500'000, 10e-3},
                                {Collective::all_to_all, 4, 2'500'000, 10e-3},
                                {Collective::broadcast, 4, 2'500'000, 10e-3},
                                {Collective::reduce, 3, 2'500'000, 10e-3},
                                {Collective::barrier, 4, 0, 1e-3}};

Json collect_table(World&) {
  Json seen = Json::array();
  for (const Row& row : table)
    seen.push_back(student_bus_bandwidth(row.call(), row.ranks, row.seconds));
  return seen;
}

Verdict judge_table(const Run& run) {
  for (std::size_t k = 0; k < table.size(); ++k) {
    const Row& row = table[k];
    const double seen = run.ranks[0].at(k),
                 expected = bus_bandwidth(row.call(), row.ranks, row.seconds);
    if (!within(seen, expected, 1e-9))
      return {
          {fmt::format("{} of {} fp32 on {} ranks in {:.4g} ms: bus bandwidth is {:.4g} GB/s, "
                       "expected {:.4g} GB/s",
                       name_of(row.collective), row.count, row.ranks, row.seconds * 1e3, seen / 1e9,
                       expected / 1e9)}};
  }
  return {};
}

void by_program() {
  answer_by_program(student_fit, "fit_bucket_model");
  student_bus_bandwidth.bind([](const Call& call, int ranks, double seconds) {
    return answer_of_program<double>("bus_bandwidth", std::string(name_of(call.collective)),
                                     call.count * size_of(call.type), ranks, seconds);
  });
}

const Judge judge("06-alpha-beta",
                  {{"exact", collect_fits<none>, judge_fits<none>},
                   {"noise", collect_fits<five_percent>, judge_fits<five_percent>},
                   {"limits", collect_limits, judge_limits},
                   {"table", collect_table, judge_table}},
                  by_program);

}  // namespace
}  // namespace ringside::exercises
