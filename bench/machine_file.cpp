#include "bench/machine_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <fmt/format.h>

#include <unistd.h>

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/optim/adamw.hpp"
#include "autograd/optim/clip.hpp"
#include "base/clock.hpp"
#include "cli/pictures/median.hpp"

namespace ringside::cli {
namespace {

using autograd::Tensor;
using collectives::ProcessGroup;

constexpr int runs = 5;

// The median of `runs` runs after a first one, on the slowest rank. All ranks begin together.
template <class Body>
double seconds_of(ProcessGroup& world, const Body& body) {
  std::vector<double> seconds;
  for (int i = 0; i <= runs; ++i) {
    world.barrier();
    const auto start = Clock::now();
    body();
    if (i > 0) seconds.push_back(seconds_since(start));
  }
  double slowest = median(seconds);
  world.all_reduce(std::span(&slowest, 1), collectives::ReduceOp::max);
  return slowest;
}

// Bytes per second of clipping and AdamW in fp32, which reads a gradient, reads and writes two
// moments, and writes the parameter.
double update_rate(ProcessGroup& world) {
  constexpr double bytes = 4 * (1 + 2 * 2 + 1);
  constexpr std::int64_t elements = 4'000'000;  // longer than a cache
  Tensor parameter = Tensor::full({elements}, 0.1);
  parameter.set_requires_grad(true);
  parameter.set_grad(Tensor::full({elements}, 0.01));
  autograd::AdamW optimizer({{.parameters = {{"p", parameter}}, .weight_decay = 0.1}});
  const double seconds = seconds_of(world, [&] {
    const double norm = std::sqrt(autograd::grad_norm_squared(std::span(&parameter, 1)));
    optimizer.set_gradient_scale(autograd::clip_factor(norm, 1));
    optimizer.step();
  });
  return bytes * static_cast<double>(elements) / seconds;
}

// FLOP/s of a linear layer's three products, whose shortest side is `width`.
double product_rate(ProcessGroup& world, std::int64_t width) {
  constexpr std::int64_t side = 1024;
  Tensor x = Tensor::full({side, width}, 0.5), weight = Tensor::full({side, width}, 0.01);
  for (Tensor* tensor : {&x, &weight}) tensor->set_requires_grad(true);
  const Tensor seed = Tensor::full({side, side}, 1);
  const double seconds = seconds_of(world, [&] {
    x.zero_grad(), weight.zero_grad();
    autograd::backward(autograd::linear(x, weight), seed);
  });
  return 3 * 2 * static_cast<double>(side * side * width) / seconds;
}

// Seconds of a kernel that has next to no work.
double kernel_seconds(ProcessGroup& world) {
  constexpr int calls = 1000;
  const Tensor x = Tensor::full({16}, 1);
  const double seconds = seconds_of(world, [&] {
    for (int i = 0; i < calls; ++i) autograd::add(x, x);
  });
  return seconds / calls;
}

}  // namespace

Json machine_file(ProcessGroup& world, const std::string& transport, double alpha, double beta) {
  std::map<std::int64_t, double> rates;
  for (const std::int64_t width : {32, 64, 128, 256, 512, 1024})
    rates[width] = product_rate(world, width);
  double peak = 0;
  for (const auto& [width, rate] : rates) peak = std::max(peak, rate);
  Json widths = Json::array();
  for (const auto& [width, rate] : rates)
    widths.push_back({{"width", width}, {"efficiency", rate / peak}});
  Json levels = Json::array();
  levels.push_back(
      {{"name", transport}, {"group", 64}, {"gbps", 1e-9 / beta}, {"us", alpha * 1e6}});
  const double memory = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<double>(::sysconf(_SC_PAGESIZE)) / world.size();
  return {{"source", fmt::format("Measured by ringside bench --calibrate: {} ranks at the same "
                                 "time with a thread each, in fp32; messages of 2 ranks over {}",
                                 world.size(), transport)},
          {"device",
           {{"peak_tflops", peak * 1e-12},
            {"memory_gb", memory * 1e-9},
            {"memory_gbps", update_rate(world) * 1e-9},
            {"matmul_efficiency_by_width", widths},
            {"kernel_us", kernel_seconds(world) * 1e6},
            {"overlap", 0}}},
          {"levels", levels}};
}

}  // namespace ringside::cli
