#include "cli/bench/training/prediction.hpp"

#include <algorithm>
#include <cmath>
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
#include "cli/bench/training/step_bench.hpp"
#include "cli/pictures/median.hpp"
#include "cli/pictures/table.hpp"
#include "parallel/pipeline/schedule.hpp"
#include "planning/formulas/work.hpp"
#include "transformer/model.hpp"

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
  return over_ranks(median(seconds), ReduceOp::max, world);
}

// The shapes of one of t tensor ranks, which exchanges nothing.
class OneOfSeveral final : public transformer::TensorDivision {
 public:
  explicit OneOfSeveral(int size) : size_(size) {}
  int size() const override { return size_; }

 private:
  int size_;
};

// Runs `forward` and its backward: without gradients in `model`, and then once more.
template <class Forward>
PartSeconds seconds_of_part(ProcessGroup& world, const autograd::Module& model,
                            const Forward& forward) {
  std::vector<double> forwards, backwards[2];
  for (int i = 0; i <= runs; ++i) {
    model.zero_grad();
    for (std::vector<double>& backward : backwards) {
      world.barrier();
      const auto start = Clock::now();
      const Tensor y = forward();
      const double seconds = seconds_since(start);
      autograd::backward(y, y.dim() == 0 ? Tensor() : Tensor::full(y.shape(), 1e-3));
      if (i == 0) continue;
      forwards.push_back(seconds);
      backward.push_back(seconds_since(start) - seconds);
    }
  }
  double slowest[] = {median(forwards), median(backwards[0]), median(backwards[1])};
  world.all_reduce(std::span(slowest), ReduceOp::max);
  return {slowest[0], slowest[1], std::max(0.0, slowest[2] - slowest[1])};
}

// A model of one block, with the matrices that a tensor rank has.
void measure_parts(ProcessGroup& world, const planning::Model& model, const planning::Plan& plan,
                   MachineRates& rates) {
  const int t = plan.mesh.size(parallel::Axis::tp);
  const OneOfSeveral division(t);
  const transformer::Config& config = *model.own;
  const transformer::Model parts(config, autograd::DType::fp32, autograd::Device::cpu,
                                 {.tensor_ranks = t, .layers = {0}}, &division);
  const std::int64_t sequences = plan.micro_batch, tokens = plan.rank_sequence();
  std::vector<std::int32_t> ids;  // in the rows of the vocabulary that the rank has
  for (std::int64_t i = 0; i < sequences * tokens; ++i)
    ids.push_back(static_cast<std::int32_t>(i * 37 % (config.vocabulary / t)));
  const Tensor input = Tensor::from(ids, {sequences, tokens});
  Tensor x = Tensor::full({sequences, tokens, config.d_model}, 0.5);
  x.set_requires_grad(true);
  const auto measure = [&](const auto& forward) {
    return seconds_of_part(world, parts, [&] {
      x.zero_grad();
      return forward();
    });
  };
  rates.embedding = measure([&] { return parts.embed(input); });
  rates.block = measure([&] { return parts.run_layers(x, 0, 1); });
  rates.head = measure([&] { return parts.head_loss(parts.last_norm(x), input); });
  rates.products = 3 * planning::block_forward_flops(model, plan).value() / t /
                   (rates.block.forward + rates.block.backward);
}

double update_rate(ProcessGroup& world, const planning::Types& types) {
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
  return planning::optimizer_traffic(static_cast<double>(elements), types, 1).value() / seconds;
}

// The bytes of the calls that send most in a step.
double largest_call(const planning::Model& model, const planning::Plan& plan) {
  const planning::PlanLoad load =
      load_of(on_mesh(model, plan.mesh), plan, planning::find_machine("laptop"));
  double most = 0, bytes = load.message_bytes;
  const auto take = [&](const planning::Calls& calls, double times) {
    if (times * calls.count * calls.bytes <= most) return;
    most = times * calls.count * calls.bytes, bytes = calls.bytes;
  };
  const auto m = static_cast<double>(plan.micro_batches);
  for (const planning::StageLoad& stage : load.stages) {
    for (const auto* calls : {&stage.tensor_forward, &stage.tensor_backward, &stage.expert_forward})
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

PartSeconds faster_of(const PartSeconds& a, const PartSeconds& b) {
  return {std::min(a.forward, b.forward), std::min(a.backward, b.backward),
          std::min(a.sums, b.sums)};
}

}  // namespace

MachineRates measure_rates(ProcessGroup& world, const planning::Model& model,
                           const planning::Plan& plan) {
  MachineRates rates;
  measure_parts(world, model, plan, rates);
  rates.update = update_rate(world, plan.types);
  measure_link(world, largest_call(model, plan), rates);
  return rates;
}

MachineRates faster_of(const MachineRates& a, const MachineRates& b) {
  return {faster_of(a.block, b.block),       faster_of(a.embedding, b.embedding),
          faster_of(a.head, b.head),         std::max(a.products, b.products),
          std::max(a.update, b.update),      std::min(a.latency, b.latency),
          std::max(a.bandwidth, b.bandwidth)};
}

std::vector<planning::MeasuredStage> stages_of(const MachineRates& rates,
                                               const planning::Model& model,
                                               const planning::Plan& plan) {
  const auto load = load_of(on_mesh(model, plan.mesh), plan, machine_of(rates, 1, 0));
  const auto m = static_cast<double>(plan.micro_batches);
  const int count = static_cast<int>(load.stages.size());
  std::vector<planning::MeasuredStage> stages;
  for (int stage = 0; stage < count; ++stage) {
    planning::MeasuredStage& seconds = stages.emplace_back();
    seconds.optimizer = load.stages[static_cast<std::size_t>(stage)].optimizer;
    const auto add = [&](double times, const PartSeconds& part) {
      seconds.forward += times * part.forward;
      seconds.backward += times * (part.backward + (m - 1) / m * part.sums);
    };
    add(pipeline_parallel::layers_of_stage(model.layers, count, stage).count(), rates.block);
    if (stage == 0) add(1, rates.embedding);
    if (stage + 1 == count) add(1, rates.head);
  }
  return stages;
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
  const planning::Types types{.parameters = 4, .gradients = 4, .activations = 4};
  return {{"source", fmt::format("Measured by ringside bench --calibrate: {} ranks at the same "
                                 "time with a thread each, in fp32; messages of 2 ranks over {}",
                                 world.size(), transport)},
          {"device",
           {{"peak_tflops", peak * 1e-12},
            {"memory_gb", memory * 1e-9},
            {"memory_gbps", update_rate(world, types) * 1e-9},
            {"matmul_efficiency_by_width", widths},
            {"kernel_us", kernel_seconds(world) * 1e6},
            {"overlap", 0}}},
          {"levels", levels}};
}

Table prediction_table(const std::vector<Prediction>& all) {
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

}  // namespace ringside::cli
