// Judges a residual sum with its norm, forward and backward: values to the rounding of bf16, and
// bytes.
#include <cmath>

#include "base/random.hpp"
#include "exercises/36-residual-norm/interface.hpp"
#include "exercises/judge/autograd/tensors.hpp"
#include "exercises/judge/gpu/judged.hpp"

namespace ringside::exercises {
namespace {

using gpu::Bf16;

constexpr float epsilon = 1e-5f;

using Rows = GpuRows;
constexpr Rows all_rows[] = {{1, 8, 1, 32},   {3, 32, 1, 32},    {5, 100, 2, 64},
                             {4, 512, 3, 64}, {7, 1000, 2, 128}, {4, 1024, 2, 128}};

// Numbers of the inputs, as bf16 holds them: from low on, over `width`.
std::vector<float> bf16s(std::uint64_t seed, std::uint64_t which, std::int64_t n, double low,
                         double width) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < n; ++i)
    all.push_back(static_cast<float>(Bf16(static_cast<float>(
        low + width * random_uniform(seed, which, static_cast<std::uint64_t>(i))))));
  return all;
}

struct Data {
  Data(const Rows& each, std::uint64_t seed)
      : x(bf16s(seed, 36, each.rows * each.n, 0.5, 3)),
        r(bf16s(seed, 37, each.rows * each.n, -1, 2)),
        w(bf16s(seed, 38, each.n, 0.5, 1)),
        dy(bf16s(seed, 39, each.rows * each.n, -1, 2.5)),
        g(bf16s(seed, 40, each.rows * each.n, -1, 2)) {
    for (std::int64_t row = 0; row < each.rows; ++row) {
      double squares = 0, of_sums = 0;
      for (std::int64_t i = row * each.n; i < (row + 1) * each.n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        h.push_back(static_cast<float>(Bf16(x[at] + r[at])));
        squares += double{h[at]} * h[at];
        of_sums += std::pow(double{x[at]} + r[at], 2);
      }
      rstds_of_sums.push_back(1 / std::sqrt(of_sums / static_cast<double>(each.n) + epsilon));
      rstds.push_back(1 / std::sqrt(squares / static_cast<double>(each.n) + epsilon));
    }
  }
  std::vector<float> x, r, w, dy, g, h;
  std::vector<double> rstds, rstds_of_sums;  // of h as it is stored, and of x + r
};

// Whether `seen` is `expected` rounded to bf16, if that was right to 2e-5 (1 + |expected|) before.
std::string fault_of_bf16s(const std::string& name, const Json& seen,
                           const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double x = number_of(seen.at(i)), e = expected[i];
    const double rounding = e == 0 ? 0 : std::ldexp(1, std::ilogb(e) - 8);
    if (std::abs(x - e) <= rounding + 2e-5 * (1 + std::abs(e))) continue;
    return fmt::format("{}[{}] is {:.7g}, expected {:.7g} rounded to bf16, {:.7g}{}", name, i, x, e,
                       static_cast<float>(Bf16(static_cast<float>(e))),
                       std::isnan(x) ? "; memory that nobody has written is nan" : "");
  }
  return "";
}

Json collect_forward(World& world) {
  Json seen = Json::array();
  for (const Rows& each : all_rows)
    for (const bool last_first : {false, true}) {
      world.doing("residual_norm: " + each.text(last_first));
      const Data data(each, world.seed());
      GpuNumbers<Bf16> y("y", each.rows * each.n), h("h", each.rows * each.n), x("x", data.x),
          r("r", data.r);
      GpuNumbers<float> rstds("rstds", each.rows), w("w", data.w);
      const gpu::Report report =
          gpu::launch({each.blocks, each.threads, 0, last_first}, [&](gpu::EmulatedThread& gpu) {
            student_residual_norm(gpu, y.global(), h.global(), rstds.global(), x.global(),
                                  r.global(), w.global(), each.rows, each.n, epsilon);
          });
      seen.push_back(
          {{"y", y.json()}, {"h", h.json()}, {"rstds", rstds.json()}, {"report", json_of(report)}});
    }
  return seen;
}

Verdict judge_forward(const Run& run) {
  std::size_t at = 0;
  for (const Rows& each : all_rows)
    for (const bool last_first : {false, true}) {
      const Data data(each, run.seed);
      const Json& seen = run.ranks[0].at(at++);
      std::vector<double> y;
      for (std::size_t i = 0; i < data.h.size(); ++i) {
        const auto n = static_cast<std::size_t>(each.n);
        y.push_back(data.h[i] * data.rstds[i / n] * data.w[i % n]);
      }
      std::string fault = fault_of_numbers("h", seen.at("h"), {data.h.begin(), data.h.end()}, 0);
      if (fault.empty()) fault = fault_of_numbers("rstds", seen.at("rstds"), data.rstds, 1e-5);
      if (!fault.empty() && fault.starts_with("rstds") &&
          fault_of_numbers("rstds", seen.at("rstds"), data.rstds_of_sums, 1e-5).empty())
        fault += ": it is that of x + r, expected that of h, which is rounded";
      if (fault.empty()) fault = fault_of_bf16s("y", seen.at("y"), y);
      if (!fault.empty()) return {{each.text(last_first) + ": " + fault}};
    }
  return {};
}

Json collect_backward(World& world) {
  Json seen = Json::array();
  for (const Rows& each : all_rows)
    for (const bool last_first : {false, true}) {
      world.doing("residual_norm_backward: " + each.text(last_first));
      const Data data(each, world.seed());
      GpuNumbers<Bf16> dh("dh", each.rows * each.n), dy("dy", data.dy), g("g", data.g),
          h("h", data.h);
      GpuNumbers<float> parts("parts", each.blocks * each.n),
          rstds("rstds", {data.rstds.begin(), data.rstds.end()}), w("w", data.w);
      const gpu::Report report =
          gpu::launch({each.blocks, each.threads, 0, last_first}, [&](gpu::EmulatedThread& gpu) {
            student_residual_norm_backward(gpu, dh.global(), parts.global(), dy.global(),
                                           g.global(), h.global(), rstds.global(), w.global(),
                                           each.rows, each.n);
          });
      seen.push_back({{"dh", dh.json()}, {"parts", parts.json()}, {"report", json_of(report)}});
    }
  return seen;
}

Verdict judge_backward(const Run& run) {
  std::size_t at = 0;
  for (const Rows& each : all_rows)
    for (const bool last_first : {false, true}) {
      const Data data(each, run.seed);
      const Json& seen = run.ranks[0].at(at++);
      const auto n = static_cast<std::size_t>(each.n);
      std::vector<double> dh, dw(n), sums(n);
      for (std::size_t row = 0; row < static_cast<std::size_t>(each.rows); ++row) {
        double mean = 0;
        const auto u = [&](std::size_t i) { return data.h[row * n + i] * data.rstds[row]; };
        const auto wdy = [&](std::size_t i) { return double{data.w[i]} * data.dy[row * n + i]; };
        for (std::size_t i = 0; i < n; ++i) {
          mean += wdy(i) * u(i) / static_cast<double>(n);
          dw[i] += data.dy[row * n + i] * u(i);
        }
        for (std::size_t i = 0; i < n; ++i)
          dh.push_back(data.g[row * n + i] + data.rstds[row] * (wdy(i) - u(i) * mean));
      }
      Json parts = Json::array();
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t block = 0; block < static_cast<std::size_t>(each.blocks); ++block)
          sums[i] += number_of(seen.at("parts").at(block * n + i));
        parts.push_back(json_of(sums[i]));
      }
      std::string fault = fault_of_bf16s("dh", seen.at("dh"), dh);
      if (fault.empty()) fault = fault_of_numbers("the sum of parts over blocks", parts, dw, 1e-5);
      if (!fault.empty()) return {{each.text(last_first) + ": " + fault}};
    }
  return {};
}

// How often each byte of these arrays of rows x n moves: expected is once.
Verdict judge_bytes(const Run& run, std::initializer_list<std::pair<const char*, bool>> arrays) {
  const Rows& each = all_rows[5];
  Json report = run.ranks[0].at(10).at("report");
  for (const auto& [name, writes] : arrays)
    for (const bool way : {false, true}) {
      const double times = static_cast<double>(requests_of(report, name, way).bytes) /
                           static_cast<double>(2 * each.rows * each.n);
      if (times > (way == writes ? 1 : 0))
        return {
            {fmt::format("{}: each byte of {} is {} {:.2f} times, expected {}", each.text(false),
                         name, way ? "written" : "read", times, way == writes ? "once" : "never")}};
    }
  if (const RequestsSeen seen = requests_of(report, "parts", false); seen.bytes > 0)
    return {{fmt::format("{}: {} bytes of parts are read, expected none: sums belong in registers",
                         each.text(false), seen.bytes)}};
  if (const RequestsSeen seen = requests_of(report, "parts", true);
      seen.bytes > each.blocks * each.n * 4)
    return {{fmt::format("{}: {} bytes of parts are written, expected {}", each.text(false),
                         seen.bytes, each.blocks * each.n * 4)}};
  // Both have few numbers, which stay in a cache: packs of them may spread over sectors.
  auto lines = report.at("lines").get<std::vector<Json>>();
  std::erase_if(
      lines, [](const Json& line) { return line.at("name") == "parts" || line.at("name") == "w"; });
  report["lines"] = lines;
  if (const std::string fault = fault_of_sectors(report); !fault.empty())
    return {{each.text(false) + ": " + fault}};
  return {};
}
Verdict judge_forward_bytes(const Run& run) {
  return judge_bytes(run, {{"x", false}, {"r", false}, {"h", true}, {"y", true}});
}
Verdict judge_backward_bytes(const Run& run) {
  return judge_bytes(run, {{"dy", false}, {"g", false}, {"h", false}, {"dh", true}});
}

const Judge judge("36-residual-norm", {{"forward", collect_forward, judge_forward},
                                       {"forward-bytes", collect_forward, judge_forward_bytes},
                                       {"backward", collect_backward, judge_backward},
                                       {"backward-bytes", collect_backward, judge_backward_bytes}});

}  // namespace
}  // namespace ringside::exercises
