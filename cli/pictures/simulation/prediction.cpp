#include "cli/pictures/simulation/prediction.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/optim/adamw.hpp"
#include "autograd/optim/clip.hpp"
#include "base/clock.hpp"
#include "cli/pictures/median.hpp"
#include "cli/pictures/table.hpp"
#include "planning/formulas/work.hpp"
#include "planning/simulation/stage_load.hpp"

namespace ringside::cli {
namespace {

using autograd::Tensor;
using collectives::ProcessGroup;
using collectives::ReduceOp;

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
  world.all_reduce(std::span(&slowest, 1), ReduceOp::max);
  return slowest;
}

// The feed-forward part of a block: products as wide as those of the plan, forward and backward.
double product_rate(ProcessGroup& world, const planning::Model& model, const planning::Plan& plan) {
  const std::int64_t tokens = plan.sequence * plan.micro_batch, d = model.d_model,
                     f = model.d_ff / plan.mesh.size(parallel::Axis::tp);
  Tensor x = Tensor::full({tokens, d}, 0.5), up = Tensor::full({f, d}, 0.01),
         down = Tensor::full({d, f}, 0.01);
  for (Tensor* tensor : {&x, &up, &down}) tensor->set_requires_grad(true);
  const Tensor seed = Tensor::full({tokens, d}, 1);
  const double seconds = seconds_of(
      world, [&] { autograd::backward(autograd::linear(autograd::linear(x, up), down), seed); });
  // Two linear layers of three products each.
  return 2 * 3 * 2 * static_cast<double>(tokens * d * f) / seconds;
}

double update_rate(ProcessGroup& world, const planning::Plan& plan) {
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
  return planning::optimizer_traffic(static_cast<double>(elements), plan.types, 1).value() /
         seconds;
}

// The bytes of the calls that send most in a step.
double largest_call(const planning::Model& model, const planning::Plan& plan) {
  const planning::PlanLoad load = load_of(model, plan, planning::find_machine("laptop"));
  double most = 0, bytes = load.message_bytes;
  const auto take = [&](const planning::Calls& calls, double times) {
    if (times * calls.count * calls.bytes <= most) return;
    most = times * calls.count * calls.bytes, bytes = calls.bytes;
  };
  const auto m = static_cast<double>(plan.micro_batches);
  for (const planning::StageLoad& stage : load.stages) {
    for (const auto* calls : {&stage.tensor_forward, &stage.tensor_backward})
      for (const planning::Calls& each : *calls) take(each, m);
    take(stage.gather_forward, m);
    take(stage.reduce, 1);
  }
  return bytes;
}

void measure_link(ProcessGroup& world, double bytes, MachineRates& rates) {
  if (world.size() == 1) return;
  const auto n = static_cast<double>(world.size());
  std::vector<float> small(2),
      large(std::max<std::size_t>(1000, static_cast<std::size_t>(bytes) / 4));
  const double first =
      seconds_of(world, [&] { world.all_reduce(std::span(small), ReduceOp::sum); });
  const double whole =
      seconds_of(world, [&] { world.all_reduce(std::span(large), ReduceOp::avg); });
  rates.latency = first / (2 * (n - 1));
  const double sent = 2 * (n - 1) / n * 4 * static_cast<double>(large.size());
  rates.bandwidth = sent / std::max(whole - first, 1e-9);
}

}  // namespace

MachineRates measure_rates(ProcessGroup& world, const planning::Model& model,
                           const planning::Plan& plan) {
  MachineRates rates;
  rates.products = product_rate(world, model, plan);
  rates.update = update_rate(world, plan);
  measure_link(world, largest_call(model, plan), rates);
  return rates;
}

MachineRates faster_of(const MachineRates& a, const MachineRates& b) {
  return {std::max(a.products, b.products), std::max(a.update, b.update),
          std::min(a.latency, b.latency), std::max(a.bandwidth, b.bandwidth)};
}

planning::Machine machine_of(const MachineRates& rates, int ranks, double overlap) {
  planning::Machine machine;
  machine.name = "this machine", machine.source = "measured on all ranks at the same time";
  machine.peak = rates.products, machine.memory_bandwidth = rates.update;
  machine.memory = 1e12;
  machine.overlap = overlap;
  machine.levels = {{.name = "link",
                     .group = ranks,
                     .bytes_per_second = rates.bandwidth > 0 ? rates.bandwidth : 1e9,
                     .latency = rates.latency}};
  return machine;
}

namespace {

Table table_of(const std::vector<Prediction>& all) {
  Table table{{words("mesh"), number("predicted\n(ms)", "predicted_step_ms", fixed(1)),
               number("measured\n(ms)", "", fixed(1)),
               number("ratio", "predicted_over_measured", fixed(2)),
               number("products\n(GFLOP/s)", "products_gflops", fixed(1)),
               number("update\n(GB/s)", "update_gbps", fixed(2)),
               number("latency\n(us)", "latency_us", fixed(1)),
               number("bandwidth\n(GB/s)", "bandwidth_gbps", fixed(2))}};
  for (const Prediction& p : all)
    table.rows.push_back({p.mesh, p.predicted * 1e3, p.measured * 1e3, p.predicted / p.measured,
                          p.rates.products * 1e-9, p.rates.update * 1e-9, p.rates.latency * 1e6,
                          p.rates.bandwidth * 1e-9});
  return table;
}

}  // namespace

std::string prediction_table(const std::vector<Prediction>& all) {
  return "\npredicted from rates of this machine, measured before and after: products,\n"
         "clip and AdamW, latency and bandwidth of a call\n" +
         table_of(all).text();
}

Json prediction_json(const std::vector<Prediction>& all) {
  return table_of(all).json();
}

}  // namespace ringside::cli
