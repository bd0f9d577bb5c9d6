// Judges a product in tiles: values, bytes of global memory, loads of shared memory, and what is
// under way while a block multiplies.
#include "base/random.hpp"
#include "exercises/37-tiled-product/interface.hpp"
#include "exercises/judge/gpu/judged.hpp"

namespace ringside::exercises {
namespace {

constexpr int tile = 32, depth = 16, threads = 64, shared_floats = 2560;

struct Shape {
  std::int64_t m, n, k, blocks;
  std::string text(bool last_first) const {
    return fmt::format("a [{}, {}], b [{}, {}], {} blocks, {}", m, k, n, k, blocks,
                       turns_text(last_first));
  }
};
constexpr Shape shapes[] = {
    {32, 32, 16, 1}, {32, 32, 48, 1}, {1, 1, 4, 1}, {40, 33, 36, 2}, {64, 32, 64, 2}};

std::vector<float> random_numbers(std::uint64_t seed, std::uint64_t which, std::int64_t n) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < n; ++i)
    all.push_back(
        static_cast<float>(random_uniform(seed, which, static_cast<std::uint64_t>(i)) - 0.5));
  return all;
}

Json collect(World& world) {
  Json seen = Json::array();
  for (const Shape& each : shapes)
    for (const bool last_first : {false, true}) {
      world.doing("product: " + each.text(last_first));
      GpuNumbers<float> c("c", each.m * each.n),
          a("a", random_numbers(world.seed(), 37, each.m * each.k)),
          b("b", random_numbers(world.seed(), 38, each.n * each.k));
      const gpu::Report report = gpu::launch(
          {each.blocks, threads, shared_floats, last_first}, [&](gpu::EmulatedThread& gpu) {
            student_product(gpu, c.global(), a.global(), b.global(), each.m, each.n, each.k);
          });
      seen.push_back({{"c", c.json()}, {"report", json_of(report)}});
    }
  return seen;
}

Verdict judge_values(const Run& run) {
  std::size_t at = 0;
  for (const Shape& each : shapes)
    for (const bool last_first : {false, true}) {
      const std::vector<float> a = random_numbers(run.seed, 37, each.m * each.k),
                               b = random_numbers(run.seed, 38, each.n * each.k);
      std::vector<double> c;
      for (std::int64_t row = 0; row < each.m; ++row)
        for (std::int64_t column = 0; column < each.n; ++column) {
          double sum = 0;
          for (std::int64_t i = 0; i < each.k; ++i)
            sum += double{a[static_cast<std::size_t>(row * each.k + i)]} *
                   b[static_cast<std::size_t>(column * each.k + i)];
          c.push_back(sum);
        }
      if (const std::string fault = fault_of_numbers("c", run.ranks[0].at(at++).at("c"), c, 1e-5);
          !fault.empty())
        return {{each.text(last_first) + ": " + fault}};
    }
  return {};
}

// Of the last shape: two whole tiles, four steps of k.
const Shape& large = shapes[4];
const Json& report_of(const Run& run) {
  return run.ranks[0].at(8).at("report");
}

Verdict judge_bytes(const Run& run) {
  for (const auto& [name, rows, times] :
       {std::tuple{"a", large.m, large.n / tile}, std::tuple{"b", large.n, large.m / tile}}) {
    const std::int64_t bytes = requests_of(report_of(run), name, false).bytes,
                       most = rows * large.k * 4 * times;
    if (bytes > most)
      return {
          {fmt::format("{}: {} bytes of {} are read, expected {}: once for each tile in its "
                       "rows of tiles",
                       large.text(false), bytes, name, most)}};
  }
  if (const std::string fault = fault_of_sectors(report_of(run)); !fault.empty())
    return {{large.text(false) + ": " + fault}};
  return {};
}

Verdict judge_shared(const Run& run) {
  const std::int64_t most = large.m * large.n * large.k / 32 / 2;
  const std::int64_t loads = requests_of(report_of(run), "shared memory", false).requests;
  if (loads > most)
    return {
        {fmt::format("{}: {} requests of a warp load from shared memory, expected at most {}, "
                     "one for two products of each lane",
                     large.text(false), loads, most)}};
  if (const std::string fault = fault_of_banks(report_of(run)); !fault.empty())
    return {{large.text(false) + ": " + fault}};
  return {};
}

Verdict judge_overlap(const Run& run) {
  const Json& report = report_of(run);
  const std::int64_t steps = large.k / depth;
  if (const int syncs = report.at("syncs"); syncs > steps + 1)
    return {{fmt::format("{}: {} syncs for {} steps of k, expected at most {}", large.text(false),
                         syncs, steps, steps + 1)}};
  const auto covered = report.at("loads_under_copies").get<double>(),
             loads = report.at("shared_loads").get<double>(), expected = steps - 1.0;
  if (covered >= loads * expected / static_cast<double>(steps) * 0.99) return {};
  return {{fmt::format(
      "{}: {:.0f} % of the loads from shared memory run while copies are under "
      "way, expected {:.0f} %: all steps but the last",
      large.text(false), 100 * covered / loads, 100 * expected / static_cast<double>(steps))}};
}

const Judge judge("37-tiled-product", {{"values", collect, judge_values},
                                       {"bytes", collect, judge_bytes},
                                       {"shared", collect, judge_shared},
                                       {"overlap", collect, judge_overlap}});

}  // namespace
}  // namespace ringside::exercises
