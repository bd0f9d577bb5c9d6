// Judges sums over a warp, a block and rows: values, the order of additions, syncs and bytes.
#include <functional>

#include "base/random.hpp"
#include "exercises/34-reduce/interface.hpp"
#include "exercises/judge/autograd/tensors.hpp"
#include "exercises/judge/gpu/judged.hpp"

namespace ringside::exercises {
namespace {

constexpr int shared_floats = 64;

std::vector<float> random_numbers(std::uint64_t seed, std::int64_t n) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < n; ++i)
    all.push_back(
        static_cast<float>(random_uniform(seed, 34, static_cast<std::uint64_t>(i)) * 2 - 0.5));
  return all;
}

// ---- A sum over the threads of each warp, or of the block, several times ----

constexpr int calls = 3;

// y[call, thread] is what a thread gets for x[call, thread].
Json collect_sums(World& world, std::initializer_list<int> blocks,
                  const Student<float(gpu::EmulatedThread&, float)>& student_sum) {
  Json seen = Json::array();
  for (const int threads : blocks)
    for (const bool last_first : {false, true}) {
      world.doing(fmt::format("{} threads, {}", threads, turns_text(last_first)));
      GpuNumbers<float> y("y", calls * threads),
          x("x", random_numbers(world.seed(), calls * threads));
      const gpu::Report report =
          gpu::launch({1, threads, shared_floats, last_first}, [&](gpu::EmulatedThread& gpu) {
            for (int call = 0; call < calls; ++call) {
              const int at = call * threads + gpu.thread();
              gpu.store(y.global(), at, student_sum(gpu, gpu.load(x.global(), at)));
            }
          });
      seen.push_back({{"y", y.json()}, {"report", json_of(report)}});
    }
  return seen;
}

// `group`: how many threads have a sum in common.
Verdict judge_sums(const Run& run, std::initializer_list<int> blocks,
                   const std::function<int(int threads)>& group) {
  std::size_t at = 0;
  for (const int threads : blocks) {
    const std::vector<float> x = random_numbers(run.seed, calls * threads);
    for (const bool last_first : {false, true}) {
      const Json& seen = run.ranks[0].at(at++);
      std::vector<double> expected(x.size());
      const auto size = static_cast<std::size_t>(group(threads));
      for (std::size_t first = 0; first < x.size(); first += size) {
        double sum = 0;
        for (std::size_t i = 0; i < size; ++i) sum += static_cast<double>(x[first + i]);
        std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(first), size, sum);
      }
      for (int call = 0; call < calls; ++call) {
        const auto begin = expected.begin() + std::ptrdiff_t{call} * threads;
        const Json& y = seen.at("y");
        const Json part = std::vector<Json>(y.begin() + std::ptrdiff_t{call} * threads,
                                            y.begin() + std::ptrdiff_t{call + 1} * threads);
        if (const std::string fault =
                fault_of_numbers("sum of thread", part, {begin, begin + threads}, 1e-5);
            !fault.empty())
          return {{fmt::format("{} threads, {}, call {}: {}", threads, turns_text(last_first), call,
                               fault)}};
      }
    }
  }
  return {};
}

Json collect_warp(World& world) {
  return collect_sums(world, {32, 96}, student_warp_sum);
}

Verdict judge_warp(const Run& run) {
  if (Verdict wrong = judge_sums(run, {32, 96}, [](int) { return gpu::warp_size; });
      !wrong.says.empty())
    return wrong;
  const Json& report = run.ranks[0].at(0).at("report");
  const auto shared = requests_of(report, "shared memory", true).requests;
  if (report.at("syncs") == 0 && shared == 0) return {};
  return {
      {fmt::format("32 threads: warp_sum calls sync() {} times and writes shared memory in {} "
                   "requests; a warp needs neither",
                   report.at("syncs").get<int>() / calls, shared / calls)}};
}

Json collect_block(World& world) {
  return collect_sums(world, {32, 64, 160, 1024}, student_block_sum);
}

Verdict judge_block(const Run& run) {
  if (Verdict wrong = judge_sums(run, {32, 64, 160, 1024}, [](int threads) { return threads; });
      !wrong.says.empty())
    return wrong;
  if (const std::string fault = fault_of_syncs(run.ranks[0].at(6).at("report"), "block_sum", calls);
      !fault.empty())
    return {{fault}};
  return {};
}

// ---- Rows ----

using Rows = GpuRows;
constexpr Rows all_rows[] = {{1, 1, 1, 32},    {3, 20, 1, 64},   {5, 64, 2, 64},
                             {4, 1000, 3, 96}, {7, 333, 2, 256}, {3, 2048, 3, 128}};

Json collect_rows(World& world) {
  Json seen = Json::array();
  for (const Rows& each : all_rows)
    for (const bool last_first : {false, true}) {
      world.doing("row_sums: " + each.text(last_first));
      GpuNumbers<float> sums("sums", each.rows),
          x("x", random_numbers(world.seed(), each.rows * each.n));
      const gpu::Report report = gpu::launch(
          {each.blocks, each.threads, shared_floats, last_first}, [&](gpu::EmulatedThread& gpu) {
            student_row_sums(gpu, sums.global(), x.global(), each.rows, each.n);
          });
      seen.push_back({{"sums", sums.json()}, {"report", json_of(report)}});
    }
  return seen;
}

Verdict judge_rows(const Run& run) {
  std::size_t at = 0;
  for (const Rows& each : all_rows)
    for (const bool last_first : {false, true}) {
      const std::vector<float> x = random_numbers(run.seed, each.rows * each.n);
      std::vector<double> expected(static_cast<std::size_t>(each.rows));
      for (std::size_t i = 0; i < x.size(); ++i)
        expected[i / static_cast<std::size_t>(each.n)] += static_cast<double>(x[i]);
      if (const std::string fault =
              fault_of_numbers("sums", run.ranks[0].at(at++).at("sums"), expected, 1e-5);
          !fault.empty())
        return {{each.text(last_first) + ": " + fault}};
    }
  return {};
}

Verdict judge_order(const Run& run) {
  for (std::size_t at = 0; at < std::size(all_rows); ++at) {
    const Json &seen = run.ranks[0].at(2 * at).at("sums"),
               &other = run.ranks[0].at(2 * at + 1).at("sums");
    for (std::size_t row = 0; row < seen.size(); ++row)
      if (seen[row] != other[row])
        return {{fmt::format(
            "{}: sums[{}] is {:.9g}, and with the last thread first {:.9g}: the "
            "order of the additions depends on which thread comes first",
            all_rows[at].text(false), row, number_of(seen[row]), number_of(other[row]))}};
  }
  return {};
}

Verdict judge_bytes(const Run& run) {
  const Rows& each = all_rows[5];
  const Json& report = run.ranks[0].at(10).at("report");
  if (const std::string fault = fault_of_sectors(report); !fault.empty())
    return {{each.text(false) + ": " + fault}};
  const RequestsSeen reads = requests_of(report, "x", false),
                     writes = requests_of(report, "sums", true);
  const std::int64_t most = each.rows * each.n / 32;
  if (reads.requests > most)
    return {{fmt::format("{}: x is read in {} requests of a warp, expected at most {}",
                         each.text(false), reads.requests, most)}};
  if (writes.requests > each.rows)
    return {{fmt::format("{}: sums is written in {} requests of a warp, expected one for each row",
                         each.text(false), writes.requests)}};
  return {};
}

const Judge judge("34-reduce", {{"warp", collect_warp, judge_warp},
                                {"block", collect_block, judge_block},
                                {"rows", collect_rows, judge_rows},
                                {"order", collect_rows, judge_order},
                                {"bytes", collect_rows, judge_bytes}});

}  // namespace
}  // namespace ringside::exercises
