// `ringside bench zero`: what data parallel and the stages of ZeRO hold, send, and take, beside the formulas.
#include <algorithm>
#include <memory>
#include <span>
#include <thread>

#include "autograd/engine.hpp"
#include "autograd/optimizer.hpp"
#include "autograd/parallel.hpp"
#include "base/environment.hpp"
#include "base/random.hpp"
#include "cli/bench_zero_report.hpp"
#include "cli/command.hpp"
#include "cli/forms.hpp"
#include "cli/ranks.hpp"
#include "collectives/process_group.hpp"
#include "ddp/bucketed.hpp"
#include "transformer/model.hpp"

namespace ringside::cli {
namespace {

using autograd::Tensor;
using collectives::ProcessGroup;
using collectives::ReduceOp;

constexpr int warmup_steps = 2;
constexpr const char* more =
    "\nn is the bytes of all parameters, p the number of ranks; AdamW keeps 2 n. A rank holds and sends\n"
    "  form              parameters   gradients   optimizer state   sent in a step\n"
    "  bucketed          n            n           2 n               2 (p-1)/p n     data parallel\n"
    "  zero1_broadcast   n            n           2 n / p           3 (p-1)/p n     an owner for each parameter\n"
    "  zero1             n            n           2 n / p           2 (p-1)/p n     reduce-scatter, step, all-gather\n"
    "  zero2             n            n / p       2 n / p           2 (p-1)/p n\n"
    "  zero3             n / p        n / p       2 n / p           3 (p-1)/p n     FSDP\n"
    "Memory is counted where it is allocated, by kind, and told of the rank that holds most; `peak` is the most that was ever held "
    "of a kind\n"
    "during a step, and, under `together`, of all kinds at one moment.\n"
    "\n"
    "Examples:\n"
    "  ringside bench zero -n 2 --model lab                      five forms over shared memory\n"
    "  ringside bench zero -n 4 --model tiny --backend tcp --json zero.json\n";

struct Arguments {
  RanksOption ranks{.count = {}, .otherwise = 2};
  std::string model = "lab", json;
  std::vector<std::string> forms = {"bucketed", "zero1_broadcast", "zero1", "zero2", "zero3"};
  std::int64_t batch = 2, sequence = 256;
  double bucket_mb = ddp::Bucketed::default_bucket_mb;
  int steps = 5, threads = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

BytesByKind now() {
  BytesByKind bytes{};
  for (const auto kind : autograd::all_memory_kinds)
    bytes[static_cast<std::size_t>(kind)] = static_cast<double>(autograd::memory_use(kind).current);
  return bytes;
}

// One form on one rank: model, form and optimizer of its own.
class FormBench {
 public:
  FormBench(const Arguments& said, const transformer::Config& config, const std::string& form, ProcessGroup& group)
      : said_(said),
        config_(config),
        group_(group),
        model_(config, autograd::DType::fp32),
        form_(make_form(form, group, said.bucket_mb)) {
    form_->prepare(model_);
    optimizer_ = form_->make_optimizer(
        {{.parameters = model_.named_parameters(), .learning_rate = 1e-4, .weight_decay = 0.1}},
        [](std::vector<autograd::ParameterGroup> groups) { return std::make_unique<autograd::AdamW>(std::move(groups)); });
    figures_.form = form;
    figures_.formula = zero_formula(form, static_cast<double>(parameter_count(config)), group.size());
    figures_.moments = {{"made", now()}, {"before step", {}}, {"after step", {}}};
  }

  // Of this rank; every rank must call it.
  ZeroFigures measure() {
    for (int i = 0; i < warmup_steps; ++i) step();
    autograd::reset_peak_memory();
    std::vector<double> seconds, communication;
    const auto before = group_.traffic();
    for (int i = 0; i < said_.steps; ++i) {
      const auto start = Clock::now();
      const double communicated = form_->communication_seconds();
      step();
      seconds.push_back(seconds_since(start));
      communication.push_back(form_->communication_seconds() - communicated);
    }
    figures_.bytes_sent = static_cast<double>(group_.traffic().payload_bytes_sent - before.payload_bytes_sent) / said_.steps;
    for (const auto kind : autograd::all_memory_kinds)
      figures_.peak[static_cast<std::size_t>(kind)] = static_cast<double>(autograd::memory_use(kind).peak);
    figures_.peak_of_all = static_cast<double>(autograd::memory_use().peak);
    figures_.step_seconds = median(seconds), figures_.communication_seconds = median(communication);
    return figures_;
  }

 private:
  void step() {
    form_->clear_gradients(*optimizer_);
    autograd::backward(model_.loss(tokens(0), tokens(1)));
    form_->finish_gradients();
    figures_.moments[1].bytes = now();
    form_->step(*optimizer_);
    figures_.moments[2].bytes = now();
  }

  Tensor tokens(std::uint64_t stream) const {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(said_.batch * said_.sequence));
    const auto rank = static_cast<std::uint64_t>(group_.rank());
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<std::int32_t>(random_below(static_cast<std::uint64_t>(config_.vocabulary), 1 + rank, stream, i));
    return Tensor::from(ids, {said_.batch, said_.sequence});
  }

  const Arguments& said_;
  const transformer::Config& config_;
  ProcessGroup& group_;
  transformer::Model model_;
  std::unique_ptr<transformer::ParallelForm> form_;
  std::unique_ptr<autograd::Optimizer> optimizer_;
  ZeroFigures figures_;
};

// The most of all ranks; of bytes sent, the mean.
ZeroFigures of_all_ranks(ZeroFigures figures, ProcessGroup& group) {
  std::vector<double*> numbers = {&figures.peak_of_all, &figures.step_seconds, &figures.communication_seconds};
  for (auto& bytes : figures.peak) numbers.push_back(&bytes);
  for (auto& moment : figures.moments)
    for (auto& bytes : moment.bytes) numbers.push_back(&bytes);
  std::vector<double> values;
  for (const double* number : numbers) values.push_back(*number);
  group.all_reduce(std::span(values), ReduceOp::max);
  for (std::size_t i = 0; i < numbers.size(); ++i) *numbers[i] = values[i];
  group.all_reduce(std::span(&figures.bytes_sent, 1), ReduceOp::avg);
  return figures;
}

transformer::Config config_of(const Arguments& said) {
  transformer::Config config = transformer::named_config(said.model);
  config.sequence = std::max(config.sequence, said.sequence);
  return config;
}

void bench_as_rank(const Arguments& said, ProcessGroup& group, int ranks_on_this_machine) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = said.threads > 0 ? said.threads : std::max(1, cores / ranks_on_this_machine);
  autograd::set_threads(threads);
  const transformer::Config config = config_of(said);
  std::vector<ZeroFigures> all;
  for (const std::string& form : said.forms) all.push_back(of_all_ranks(FormBench(said, config, form, group).measure(), group));
  if (group.rank() != 0) return;
  const ZeroBenchTitle title{
      said.model, group.backend_name(), parameter_count(config), said.batch, said.sequence, group.size(), threads, said.steps};
  fmt::print("{}", zero_table(title, all));
  std::fflush(stdout);
  if (!said.json.empty()) write_json_file(said.json, to_json(title, all));
}

}  // namespace

void add_bench_zero_command(CLI::App& bench) {
  auto* command = bench.add_subcommand("zero", "Measure what data parallel and the stages of ZeRO hold, send and take");
  const auto said = std::make_shared<Arguments>();
  add_ranks_option(*command, said->ranks);
  add_link_option(*command);
  command->add_option("--model", said->model, fmt::format("One of {}", fmt::join(transformer::config_names(), ", ")))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--forms", said->forms, "Which of them; the first is the one that times are held against")
      ->delimiter(',')
      ->type_name("FORM,...")
      ->check(CLI::IsMember({"bucketed", "zero1_broadcast", "zero1", "zero2", "zero3"}).description(""))
      ->capture_default_str();
  add_backend_option(*command, said->ranks);
  command->add_option("--batch", said->batch, "Sequences of a step, of each rank")
      ->type_name("N")
      ->check(at_least_one("sequence"))
      ->capture_default_str();
  command->add_option("--sequence", said->sequence, "Tokens of each")
      ->type_name("N")
      ->check(at_least_one("token"))
      ->capture_default_str();
  command->add_option("--bucket-mb", said->bucket_mb, "The most that travels in one call, in 10^6 bytes; zero3 has units instead")
      ->type_name("MB")
      ->check(CLI::PositiveNumber.description(""))
      ->capture_default_str();
  command->add_option("--threads", said->threads, "Threads of each rank (cores divided by ranks)")
      ->type_name("N")
      ->check(at_least_one("thread"));
  command->add_option("--steps", said->steps, "Steps to measure")
      ->type_name("N")
      ->check(at_least_one("step"))
      ->capture_default_str();
  command->add_option("--json", said->json, "Write the figures there")->type_name("FILE");
  command->footer(more);
  command->callback([said] {
    run_on_ranks(said->ranks, [&](ProcessGroup& group, int ranks_here) { bench_as_rank(*said, group, ranks_here); });
  });
}

}  // namespace ringside::cli
