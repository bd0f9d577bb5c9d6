// `ringside bench train`: measures the ops of a training step, beside the time of its matrix
// products alone.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>

#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/profile.hpp"
#include "autograd/kernels/threads/parallel.hpp"
#include "autograd/optim/adamw.hpp"
#include "autograd/tensor/storage.hpp"
#include "base/clock.hpp"
#include "base/memory.hpp"
#include "bench/commands/step_arguments.hpp"
#include "bench/operands.hpp"
#include "bench/training/step_bench.hpp"
#include "bench/training/train_report.hpp"
#include "cli/options/command.hpp"
#include "cli/pictures/median.hpp"
#include "training/product_calibration.hpp"
#include "training/step.hpp"
#include "training/strategies/single_process.hpp"
#include "transformer/model.hpp"

namespace ringside::cli {
namespace {

using autograd::Device;
using autograd::DType;
using autograd::Profile;
using autograd::Tensor;

constexpr int warmup_steps = 2;
struct TrainArguments : StepOptions {
  TrainArguments() { batch = 4; }
  std::string svg;
  DeviceOption device;
  std::vector<int> threads;
};

Device device_of(const TrainArguments& args, DType dtype) {
  const Device device = device_from(args.device, dtype);
  take_device(device);
  return device;
}

class TrainBench {
 public:
  explicit TrainBench(const TrainArguments& args)
      : args_(args),
        dtype_(autograd::dtype_named(args.dtype)),
        device_(device_of(args, dtype_)),
        model_(args.config(), dtype_, device_),
        optimizer_({{.parameters = model_.named_parameters(),
                     .learning_rate = 1e-4,
                     .weight_decay = 0.1}}),
        batch_(args.sequences(0, args.batch)),
        operands_(device_ == Device::cpu ? DType::fp32 : dtype_, device_) {}

  TrainFigures measure(int threads) {
    training::begin_computing(threads);
    TrainFigures figures{.run = describe_run(args_, args_.device.name),
                         .libraries = autograd::matrix_libraries(),
                         .ops = {}};
    autograd::release_cached_memory();  // of the measurement with another number of threads
    autograd::reset_peak_memory();
    reset_peak_resident_memory();
    for (int i = 0; i < warmup_steps; ++i) step();
    figures.tensor_bytes = static_cast<double>(autograd::memory_use().peak);
    figures.resident_bytes = static_cast<double>(peak_resident_memory().value_or(0));
    if (products_.empty()) products_ = products_of_one_step();
    for (const auto& product : products_) figures.flops += product.flops();

    std::map<std::string, std::vector<double>> forward, backward;
    std::vector<double> seconds, gemm, alone;
    for (int i = 0; i < args_.steps; ++i) {
      const StepTimes times = timed_step();
      seconds.push_back(times.seconds), gemm.push_back(times.gemm);
      for (const auto& op : times.ops)
        forward[op.name].push_back(op.forward), backward[op.name].push_back(op.backward);
      if (i == 0) figures.ops = times.ops;
      // In turn with the steps, so that changes of the machine affect both alike.
      alone.push_back(device_ == Device::cpu ? products_alone() : products_alone_on_device());
    }
    for (auto& op : figures.ops)
      op.forward = median(forward[op.name]), op.backward = median(backward[op.name]);
    figures.step_seconds = median(seconds), figures.alone_seconds = median(alone);
    // The profile sees the products of this thread only.
    figures.gemm_seconds = threads == 1 && device_ != Device::cuda ? median(gemm) : 0;
    return figures;
  }

 private:
  struct StepTimes {
    double seconds = 0, gemm = 0;
    std::vector<autograd::OpTime> ops;
  };

  StepTimes timed_step() {
    StepTimes times;
    std::optional<Profile> profile;
    if (device_ == Device::cpu) profile.emplace();
    const auto start = Clock::now();
    step();
    synchronise();
    times.seconds = seconds_since(start);
    // On a device, marks between all ops make the step longer, so the ops are timed in a second
    // step.
    if (!profile) {
      profile.emplace(device_);
      step();
    }
    times.gemm = profile->gemm_seconds();
    times.ops = profile->ops();
    return times;
  }

  // The step that the trainer takes on one rank.
  void step() {
    training::SingleProcess alone;
    training::take_step(alone, model_, optimizer_, std::span(&batch_, 1), 1,
                        [](std::string_view part) {
                          if (part == "clip") Profile::note_forward("gradient norm");
                          if (part == "optimizer") Profile::note_forward("adamw");
                        });
  }

  std::vector<autograd::Product> products_of_one_step() {
    const int threads = autograd::threads();
    autograd::set_threads(1);  // the profile sees the products of this thread only
    const Profile profile;
    step();
    autograd::set_threads(threads);
    return profile.products();
  }

  void synchronise() const { cli::synchronise(device_); }

  // The same on a device, with the model's storage dtype. Attention's products are not among them.
  double products_alone_on_device() {
    double seconds = 0;
    for (const auto& p : products_) {
      const Tensor a = operands_.make({p.m * p.k}), b = operands_.make({p.k * p.n});
      const Tensor c = Tensor::empty({p.m * p.n}, dtype_, device_);
      synchronise();
      const auto start = Clock::now();
      for (int i = 0; i < p.calls; ++i)
        autograd::device_kernels(device_).gemm({.a = p.a, .b = p.b, .m = p.m, .n = p.n, .k = p.k},
                                               a, b, c);
      synchronise();
      seconds += seconds_since(start);
    }
    return seconds;
  }

  // The products of a step with nothing in between. Each short product runs on one thread, as
  // attention's do.
  double products_alone() {
    double seconds = 0;
    for (const auto& p : products_)
      seconds += p.bf16 ? product_alone<autograd::Bf16>(p, bf16_operands_)
                        : product_alone<float>(p, operands_);
    return seconds;
  }

  // S is the type of the operands; the sums are fp32.
  template <class S>
  double product_alone(const autograd::Product& p, RandomOperands& operands) {
    const Tensor a = operands.make({p.m * p.k}), b = operands.make({p.k * p.n});
    const Tensor c = Tensor::zeros({autograd::threads(), p.m * p.n}, DType::fp32);
    const auto multiply = [&](int piece) {
      autograd::gemm(p.a, p.b, p.m, p.n, p.k, 1.0f, a.data<S>(),
                     p.a == autograd::Transpose::yes ? p.m : p.k, b.data<S>(),
                     p.b == autograd::Transpose::yes ? p.k : p.n, 0.0f,
                     c.data<float>() + piece * p.m * p.n, p.n);
    };
    const bool are_short = p.flops() / p.calls < 4e6;
    const auto start = Clock::now();
    if (are_short)
      autograd::parallel_for_pieces(p.calls, 1,
                                    [&](int piece, std::int64_t begin, std::int64_t end) {
                                      for (auto i = begin; i < end; ++i) multiply(piece);
                                    });
    else
      for (int i = 0; i < p.calls; ++i) multiply(0);
    return seconds_since(start);
  }

  const TrainArguments& args_;
  DType dtype_;
  Device device_;
  transformer::Model model_;
  autograd::AdamW optimizer_;
  transformer::Batch batch_;
  std::vector<autograd::Product> products_;
  RandomOperands operands_, bf16_operands_{DType::bf16, Device::cpu};
};

void bench_train(const TrainArguments& args) {
  std::vector<int> threads = args.threads;
  if (threads.empty()) {
    threads = {1};
    if (args.device.name == "cpu" && std::thread::hardware_concurrency() >= 2) threads.push_back(2);
  }
  training::begin_computing(threads.front());  // which may choose another library
  if (const std::string warning = slow_kernel_warning(autograd::matrix_libraries());
      !warning.empty() && args.device.name != "cuda")  // there cuBLAS multiplies
    fmt::print(stderr, "ringside: {}\n", warning);
  TrainBench bench(args);
  std::vector<TrainFigures> all;
  std::vector<BenchResult> results;
  for (const int n : threads) {
    all.push_back(bench.measure(n));
    results.push_back(result_of(all.back()));
  }
  write_results(results, args.json);
  if (!args.svg.empty()) write_text_file(args.svg, train_plot(all), "the drawing");
}

}  // namespace

void add_bench_train_command(CLI::App& bench) {
  const auto [option, args] = add_command(
      bench, "train", "Measure a training step on one rank: the time of each op", bench_train);
  add_step_options(option, args);
  add_dtype_option(option, args.dtype);
  option("--threads N,...", args.threads,
         "Numbers of threads, measured in this order [1, and 2 if there are two cores]",
         at_least_one("thread"));
  add_device_option(option, args.device);
  option("--svg FILE", args.svg, "Draw the times to this file");
}

}  // namespace ringside::cli
