// `ringside bench train`: where the time of a training step goes, beside what the machine's matrix products alone would take.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <thread>

#include "autograd/engine.hpp"
#include "autograd/optimizer.hpp"
#include "autograd/parallel.hpp"
#include "autograd/profile.hpp"
#include "autograd/storage.hpp"
#include "base/memory.hpp"
#include "cli/bench_train_report.hpp"
#include "cli/command.hpp"
#include "cli/median.hpp"
#include "cli/progress.hpp"
#include "cli/ranks.hpp"
#include "cli/bench_step.hpp"
#include "transformer/model.hpp"

namespace ringside::cli {
namespace {

using autograd::DType;
using autograd::Profile;
using autograd::Tensor;

constexpr int warmup_steps = 2;
constexpr const char* more =
    "Columns: forward and backward are the medians over the steps of what an op took; share is of the step. `gemm` is the part of the ops' time\n"
    "that was spent in matrix products, and `alone` what the same products take one after the other with nothing in between: the limit of\n"
    "this machine with this library. ratio = step / alone. linear_cross_entropy computes its gradients forward.\n"
    "\n"
    "Examples:\n"
    "  ringside bench train --model lab                          1 thread and 2, batch 4 x 256, fp32, AdamW\n"
    "  ringside bench train --model tiny --batch 8 --threads 1 --json step.json --svg step.svg\n";

struct Arguments {
  BenchStepOptions step{.batch = 4, .json = {}};
  std::string dtype = "fp32", svg;
  std::vector<int> threads;
};

class TrainBench {
 public:
  explicit TrainBench(const Arguments& said)
      : said_(said),
        config_(said.step.config()),
        model_(config_, said.dtype == "bf16" ? DType::bf16 : DType::fp32),
        optimizer_(groups()), input_(said.step.tokens(0)), target_(said.step.tokens(1)) {}

  TrainFigures measure(int threads) {
    autograd::set_threads(threads);
    TrainFigures figures;
    autograd::release_cached_memory();  // what another number of threads has left
    autograd::reset_peak_memory();
    reset_peak_resident_memory();
    for (int i = 0; i < warmup_steps; ++i) step();
    figures.tensor_bytes = static_cast<double>(autograd::memory_use().peak);
    figures.resident_bytes = static_cast<double>(peak_resident_memory().value_or(0));
    if (products_.empty()) products_ = products_of_one_step();

    std::map<std::string, std::vector<double>> forward, backward;
    std::vector<double> seconds, gemm, alone;
    for (int i = 0; i < said_.step.steps; ++i) {
      const auto start = Clock::now();
      const Profile profile;
      step();
      seconds.push_back(seconds_since(start));
      gemm.push_back(profile.gemm_seconds());
      for (const auto& op : profile.ops()) forward[op.name].push_back(op.forward), backward[op.name].push_back(op.backward);
      alone.push_back(products_alone());  // in turn with the steps: the machine drifts for both
      if (i == 0) figures.ops = profile.ops();
    }
    for (auto& op : figures.ops) op.forward = median(forward[op.name]), op.backward = median(backward[op.name]);
    figures.model = said_.step.model, figures.dtype = said_.dtype, figures.parameters = parameter_count(config_);
    figures.batch = said_.step.batch, figures.sequence = said_.step.sequence, figures.threads = threads;
    figures.step_seconds = median(seconds), figures.alone_seconds = median(alone);
    figures.gemm_seconds = threads == 1 ? median(gemm) : 0;  // other threads' products are not told apart
    for (const auto& product : products_) figures.flops += product.flops();
    return figures;
  }

 private:
  std::vector<autograd::ParameterGroup> groups() const {
    return {{.parameters = model_.named_parameters(), .learning_rate = 1e-4, .weight_decay = 0.1}};
  }

  void step() {
    optimizer_.zero_grad();
    autograd::backward(model_.loss(input_, target_));
    std::vector<Tensor> parameters;
    for (const auto& parameter : model_.named_parameters()) parameters.push_back(parameter.tensor);
    const double norm = std::sqrt(autograd::grad_norm_squared(parameters));
    optimizer_.set_gradient_scale(autograd::clip_factor(norm, 1));
    Profile::note_forward("gradient norm");
    optimizer_.step();
    Profile::note_forward("adamw");
  }

  std::vector<autograd::Product> products_of_one_step() {
    const int threads = autograd::threads();
    autograd::set_threads(1);  // on one thread every product is seen
    const Profile profile;
    step();
    autograd::set_threads(threads);
    return profile.products();
  }

  // The products of a step with nothing between them. Short ones are shared out to threads whole, as attention's are.
  double products_alone() {
    double seconds = 0;
    for (const auto& p : products_) {
      const Tensor a = Tensor::full({p.m * p.k}, 0.5, DType::fp32), b = Tensor::full({p.k * p.n}, 0.5, DType::fp32);
      const Tensor c = Tensor::zeros({autograd::threads(), p.m * p.n}, DType::fp32);
      const auto multiply = [&](int piece) {
        autograd::gemm(p.a, p.b, p.m, p.n, p.k, 1.0f, a.data<float>(), p.a == autograd::Transpose::yes ? p.m : p.k, b.data<float>(),
                       p.b == autograd::Transpose::yes ? p.k : p.n, 0.0f, c.data<float>() + piece * p.m * p.n, p.n);
      };
      const bool short_ones = p.flops() / p.calls < 4e6;
      const auto start = Clock::now();
      if (short_ones)
        autograd::parallel_for_pieces(p.calls, 1, [&](int piece, std::int64_t begin, std::int64_t end) {
          for (auto i = begin; i < end; ++i) multiply(piece);
        });
      else
        for (int i = 0; i < p.calls; ++i) multiply(0);
      seconds += seconds_since(start);
    }
    return seconds;
  }

  const Arguments& said_;
  transformer::Config config_;
  transformer::Model model_;
  autograd::AdamW optimizer_;
  Tensor input_, target_;
  std::vector<autograd::Product> products_;
};

void run(const Arguments& said) {
  std::vector<int> threads = said.threads;
  if (threads.empty()) {
    threads = {1};
    if (std::thread::hardware_concurrency() >= 2) threads.push_back(2);
  }
  TrainBench bench(said);
  std::vector<TrainFigures> all;
  for (const int n : threads) {
    all.push_back(bench.measure(n));
    fmt::print(file_beside(said.step.json), "{}{}", all.size() > 1 ? "\n" : "", train_table(all.back()));
    std::fflush(nullptr);
  }
  if (!said.step.json.empty()) write_json_file(said.step.json, to_json(all));
  if (said.svg.empty()) return;
  std::ofstream file(said.svg);
  file << train_plot(all);
  file.close();
  require(!file.fail(), "cannot write the drawing to {}: does its folder exist, and may you write there?", said.svg);
}

}  // namespace

void add_bench_train_command(CLI::App& bench) {
  auto* command = bench.add_subcommand("train", "Measure a training step on one rank: what each op takes");
  const auto said = std::make_shared<Arguments>();
  said->step.add_to(*command);
  command->add_option("--dtype", said->dtype, "fp32, or bf16: what is kept takes half, products are fp32's all the same")
      ->type_name("TYPE")->check(CLI::IsMember({"fp32", "bf16"}).description(""))->capture_default_str();
  command->add_option("--threads", said->threads, "Numbers of threads, one after the other (default: 1, and 2 where there are as many cores)")
      ->delimiter(',')->type_name("N,...")->check(at_least_one("thread"));
  command->add_option("--svg", said->svg, "Draw where the time goes there")->type_name("FILE");
  command->footer(more);
  command->callback([said] { run(*said); });
}

}  // namespace ringside::cli
