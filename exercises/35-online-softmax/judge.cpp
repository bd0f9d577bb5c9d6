// Judges an online softmax: partial results that are merged, losses, gradients, and bytes.
#include <cmath>

#include "base/random.hpp"
#include "exercises/35-online-softmax/interface.hpp"
#include "exercises/judge/autograd/tensors.hpp"
#include "exercises/judge/gpu/judged.hpp"

namespace ringside::exercises {
namespace {

using gpu::infinity;
using gpu::Softmax;

constexpr double tolerance = 5e-5;

// ---- Two parts, and the parts of a block's threads ----

struct Pair {
  Softmax a, b;
};
const Pair pairs[] = {{{1, 2}, {3, 4}},
                      {{3, 4}, {1, 2}},
                      {{-5, 1}, {-5, 1}},
                      {{}, {2, 3}},
                      {{2, 3}, {}},
                      {{}, {}},
                      {{100, 1.5f}, {-100, 9}},
                      {{300, 2}, {299, 2}},
                      {{-1000, 3}, {-1001, 1}},
                      {{-infinity, 1}, {0, 2}}};

Json json_of(const Softmax& s) {
  return {{"largest", std::isinf(s.largest) ? Json("-inf") : exercises::json_of(s.largest)},
          {"total", exercises::json_of(s.total)}};
}
// "" if `seen` is what is known of `parts`.
std::string fault_of(const Json& seen, const std::vector<Softmax>& parts) {
  double largest = -infinity, total = 0;
  for (const Softmax& part : parts) largest = std::max(largest, double{part.largest});
  for (const Softmax& part : parts)
    if (!std::isinf(part.largest)) total += part.total * std::exp(part.largest - largest);
  const double seen_largest =
      seen.at("largest") == "-inf" ? -infinity : number_of(seen.at("largest"));
  if (seen_largest != largest)
    return fmt::format("largest is {:.6g}, expected {:.6g}", seen_largest, largest);
  const double seen_total = number_of(seen.at("total"));
  if (std::isinf(largest) && seen_total == 0) return "";
  if (std::isinf(largest))
    return fmt::format(
        "total is {:.6g} where nothing but -infinity was seen, expected 0: "
        "infinity - infinity is nan",
        seen_total);
  if (std::abs(seen_total - total) <= tolerance * (1 + total)) return "";
  return fmt::format("total is {:.6g}, expected {:.6g}: the sum of exp(z - {:.6g})", seen_total,
                     total, largest);
}

Json collect_merged(World& world) {
  Json seen = Json::array();
  world.doing("merged");
  gpu::launch({1, 32, 0, false}, [&](gpu::EmulatedThread& gpu) {
    if (gpu.thread() != 0) return;
    for (const Pair& each : pairs) seen.push_back(json_of(student_merged(gpu, each.a, each.b)));
  });
  return seen;
}

Verdict judge_merged(const Run& run) {
  for (std::size_t i = 0; i < std::size(pairs); ++i) {
    const auto& [a, b] = pairs[i];
    if (const std::string fault = fault_of(run.ranks[0].at(i), {a, b}); !fault.empty())
      return {{fmt::format("merged({{largest {}, total {}}}, {{largest {}, total {}}}): {}",
                           a.largest, a.total, b.largest, b.total, fault)}};
  }
  return {};
}

constexpr int blocks[] = {32, 64, 224, 1024}, calls = 2;

// Every third thread has seen nothing.
std::vector<Softmax> parts_of(std::uint64_t seed, int threads, int call) {
  std::vector<Softmax> parts;
  for (int thread = 0; thread < threads; ++thread) {
    const auto random = [&](std::uint64_t which) {
      return static_cast<float>(
          random_uniform(seed, which, static_cast<std::uint64_t>(thread + call * threads)));
    };
    parts.push_back(thread % 3 == 0 ? Softmax{} : Softmax{40 * random(35), 1 + 4 * random(36)});
  }
  return parts;
}

Json collect_block(World& world) {
  Json seen = Json::array();
  for (const int threads : blocks)
    for (const bool last_first : {false, true}) {
      world.doing(fmt::format("block_softmax: {} threads, {}", threads, turns_text(last_first)));
      Json all = std::vector<Json>(static_cast<std::size_t>(calls * threads));
      const gpu::Report report =
          gpu::launch({1, threads, 64, last_first}, [&](gpu::EmulatedThread& gpu) {
            for (int call = 0; call < calls; ++call) {
              const auto at = static_cast<std::size_t>(gpu.thread());
              all[at + static_cast<std::size_t>(call * threads)] =
                  json_of(student_block_softmax(gpu, parts_of(world.seed(), threads, call)[at]));
            }
          });
      seen.push_back({{"all", all}, {"report", exercises::json_of(report)}});
    }
  return seen;
}

Verdict judge_block(const Run& run) {
  std::size_t at = 0;
  for (const int threads : blocks)
    for (const bool last_first : {false, true}) {
      const Json& seen = run.ranks[0].at(at++);
      for (int call = 0; call < calls; ++call) {
        const std::vector<Softmax> parts = parts_of(run.seed, threads, call);
        for (int thread = 0; thread < threads; ++thread)
          if (const std::string fault = fault_of(
                  seen.at("all").at(static_cast<std::size_t>(call * threads + thread)), parts);
              !fault.empty())
            return {{fmt::format("{} threads, {}, call {}, thread {}: {}", threads,
                                 turns_text(last_first), call, thread, fault)}};
      }
    }
  if (const std::string fault =
          fault_of_syncs(run.ranks[0].at(6).at("report"), "block_softmax", calls);
      !fault.empty())
    return {{fault}};
  return {};
}

// ---- Rows ----

struct Rows {
  std::int64_t rows, n, blocks;
  int threads;
  float spread = 4;     // of the logits
  bool masked = false;  // every logit but each fifth and the target's is -infinity
  std::string text(bool last_first) const {
    return fmt::format("{} rows of {} logits{}, {} blocks of {} threads, {}", rows, n,
                       masked ? ", most of them -infinity" : "", blocks, threads,
                       turns_text(last_first));
  }
};
constexpr Rows all_rows[] = {{2, 5, 1, 32},        {3, 100, 2, 64},         {3, 1000, 2, 128},
                             {2, 300, 1, 64, 400}, {3, 70, 2, 64, 4, true}, {2, 2048, 2, 256}};

struct Data {
  std::vector<float> z, targets;
};
Data data_of(const Rows& each, std::uint64_t seed) {
  Data data;
  for (std::int64_t row = 0; row < each.rows; ++row) {
    const auto random = [&](std::uint64_t which, std::int64_t i) {
      return random_uniform(seed, which, static_cast<std::uint64_t>(row * each.n + i));
    };
    const auto target = static_cast<std::int64_t>(random(37, 0) * static_cast<double>(each.n));
    data.targets.push_back(static_cast<float>(target));
    for (std::int64_t i = 0; i < each.n; ++i) {
      const bool hidden = each.masked && i % 5 != 0 && i != target;
      data.z.push_back(hidden ? -infinity : each.spread * static_cast<float>(random(38, i) - 0.5));
    }
  }
  return data;
}

Json collect_rows(World& world) {
  Json seen = Json::array();
  for (const Rows& each : all_rows)
    for (const bool last_first : {false, true}) {
      world.doing("cross_entropy: " + each.text(last_first));
      const Data data = data_of(each, world.seed());
      GpuNumbers<float> losses("losses", each.rows), z("z", data.z);
      GpuNumbers<int> targets("targets", data.targets);
      z.make_output();
      const gpu::Report report =
          gpu::launch({each.blocks, each.threads, 64, last_first}, [&](gpu::EmulatedThread& gpu) {
            student_cross_entropy(gpu, losses.global(), z.global(), targets.global(), each.rows,
                                  each.n);
          });
      seen.push_back(
          {{"losses", losses.json()}, {"z", z.json()}, {"report", exercises::json_of(report)}});
    }
  return seen;
}

// Losses, and gradients.
template <bool gradients>
Verdict judge_rows(const Run& run) {
  std::size_t at = 0;
  for (const Rows& each : all_rows)
    for (const bool last_first : {false, true}) {
      const Data data = data_of(each, run.seed);
      std::vector<double> losses, p;
      for (std::int64_t row = 0; row < each.rows; ++row) {
        const auto z = data.z.begin() + row * each.n;
        const auto target = static_cast<std::int64_t>(data.targets[static_cast<std::size_t>(row)]);
        const double largest = *std::max_element(z, z + each.n);
        double total = 0;
        for (std::int64_t i = 0; i < each.n; ++i) total += std::exp(z[i] - largest);
        losses.push_back(largest + std::log(total) - z[target]);
        for (std::int64_t i = 0; i < each.n; ++i)
          p.push_back(std::exp(z[i] - largest) / total - (i == target));
      }
      const Json& seen = run.ranks[0].at(at++);
      const std::string fault =
          gradients ? fault_of_numbers("z", seen.at("z"), p, tolerance)
                    : fault_of_numbers("losses", seen.at("losses"), losses, tolerance);
      if (!fault.empty()) return {{each.text(last_first) + ": " + fault}};
    }
  return {};
}

Verdict judge_bytes(const Run& run) {
  const Rows& each = all_rows[5];
  const Json& report = run.ranks[0].at(10).at("report");
  if (const std::string fault = fault_of_sectors(report); !fault.empty())
    return {{each.text(false) + ": " + fault}};
  const RequestsSeen reads = requests_of(report, "z", false),
                     writes = requests_of(report, "z", true);
  const std::int64_t bytes = each.rows * each.n * 4, chosen = each.rows * 4;
  if (reads.bytes > 2 * bytes + chosen)
    return {{fmt::format(
        "{}: {:.2f} bytes of z are read for each byte, expected 2 at most: once for "
        "largest and total together, once for the gradient",
        each.text(false), static_cast<double>(reads.bytes) / static_cast<double>(bytes))}};
  if (writes.bytes > bytes)
    return {{fmt::format("{}: {:.2f} bytes of z are written for each byte, expected 1",
                         each.text(false),
                         static_cast<double>(writes.bytes) / static_cast<double>(bytes))}};
  const std::int64_t most = 2 * each.rows * each.n / 32 + each.rows;
  if (reads.requests <= most) return {};
  return {{fmt::format("{}: z is read in {} requests of a warp, expected at most {}",
                       each.text(false), reads.requests, most)}};
}

const Judge judge("35-online-softmax", {{"merged", collect_merged, judge_merged},
                                        {"block", collect_block, judge_block},
                                        {"loss", collect_rows, judge_rows<false>},
                                        {"gradient", collect_rows, judge_rows<true>},
                                        {"bytes", collect_rows, judge_bytes}});

}  // namespace
}  // namespace ringside::exercises
