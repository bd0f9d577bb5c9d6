// `ringside bench ddp`: what each form of data parallelism pays for communication, beside the same step without any.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <thread>

#include "autograd/engine.hpp"
#include "autograd/optimizer.hpp"
#include "autograd/parallel.hpp"
#include "autograd/profile.hpp"
#include "base/memory.hpp"
#include "base/random.hpp"
#include "cli/bench_ddp_report.hpp"
#include "cli/command.hpp"
#include "cli/forms.hpp"
#include "cli/ranks.hpp"
#include "collectives/transport/link.hpp"
#include "transformer/model.hpp"
#include "transformer/single_process.hpp"

namespace ringside::cli {
namespace {

using autograd::DType;
using autograd::Tensor;
using collectives::ProcessGroup;
using collectives::ReduceOp;

constexpr int warmup_steps = 2;
constexpr const char* more =
    "Columns: step, network and exposed are medians over the steps, each of the rank that was slowest in it. network: calls were under way.\n"
    "exposed: the rank stood still until they had ended, be it for the network or for a slower rank. calls and MB: of a rank, in a step.\n"
    "ratio: to the step without communication, in which every rank does the same work for itself, at the same time. The forms take turns step by\n"
    "step, because a machine drifts.\n"
    "The bucket model T(n) = s/(w n) + n o (docs/ddp.md) takes o and w from all-reduces of this run.\n"
    "\n"
    "Examples:\n"
    "  ringside bench ddp -n 2 --model lab                            on this machine as it is\n"
    "  ringside bench ddp -n 2 --model lab --link 1Gbps,50us          as over a network of 1 Gbps\n"
    "  ringside bench ddp -n 2 --model tiny --link 500Mbps,50us --report ddp.html\n";

struct Arguments {
  RanksOption ranks{.count = {}, .otherwise = 2};
  std::string model = "lab", json, svg, report;
  std::int64_t batch = 2, sequence = 256;
  std::vector<double> buckets{1, 10, 100, 1000};
  std::vector<std::string> forms{"naive", "flat", "overlap", "bucketed"};
  std::optional<int> threads;
  int steps = 9;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

transformer::Config config_of(const Arguments& said) {
  transformer::Config config = transformer::named_config(said.model);
  config.sequence = std::max(config.sequence, said.sequence);
  return config;
}

// One form with a model of its own, so that all can take turns.
struct Contender {
  std::string form;
  std::optional<double> bucket_mb;
  std::unique_ptr<transformer::Model> model;
  std::unique_ptr<transformer::ParallelForm> parallel;
  std::unique_ptr<autograd::Optimizer> optimizer;
  double loss = 0;  // of this rank's last batch
};

// What one rank has seen in one step of one form: all numbers, so that they can be gathered.
struct StepTimes {
  double seconds = 0, network = 0, exposed = 0, calls = 0, bytes = 0;
};
static_assert(sizeof(StepTimes) == 5 * sizeof(double));

class DdpBench {
 public:
  DdpBench(const Arguments& said, ProcessGroup& group) : said_(said), config_(config_of(said)), group_(group), input_(tokens(0)), target_(tokens(1)) {
    contenders_.push_back(make("none", {}));
    for (const auto& form : said.forms) {
      if (form == "bucketed")
        for (const double mb : said.buckets) contenders_.push_back(make(form, mb));
      else
        contenders_.push_back(make(form, {}));
    }
  }

  // Every rank must call it; the figures are whole on rank 0.
  DdpFigures measure() {
    for (int i = 0; i < warmup_steps; ++i)
      for (auto& contender : contenders_) step(contender);
    std::vector<StepTimes> own;  // [step][contender]
    for (int i = 0; i < said_.steps; ++i)
      for (auto& contender : contenders_) own.push_back(step(contender));
    DdpFigures figures = describe_run();
    fill_rows(figures, from_all_ranks(own));
    check_that_all_train_alike();
    figures.all_reduces = time_all_reduces(figures.gradient_bytes());
    figures.buckets = fit_bucket_model(figures.all_reduces);
    if (!said_.report.empty()) trace_one_step_each(figures);
    return figures;
  }

 private:
  Contender make(const std::string& form, std::optional<double> bucket_mb) {
    Contender one{form, bucket_mb, std::make_unique<transformer::Model>(config_, DType::fp32), nullptr, nullptr};
    if (form == "none")
      one.parallel = std::make_unique<transformer::SingleProcess>();
    else
      one.parallel = make_form(form, group_, bucket_mb.value_or(0));
    one.parallel->prepare(*one.model);
    one.optimizer = std::make_unique<autograd::AdamW>(
        std::vector<autograd::ParameterGroup>{{.parameters = one.model->named_parameters(), .learning_rate = 1e-4, .weight_decay = 0.1}});
    return one;
  }

  Tensor tokens(std::uint64_t stream) const {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(said_.batch * said_.sequence));
    const auto own_stream = 2 * static_cast<std::uint64_t>(group_.rank()) + stream;
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<std::int32_t>(random_below(static_cast<std::uint64_t>(config_.vocabulary), 1, own_stream, i));
    return Tensor::from(ids, {said_.batch, said_.sequence});
  }

  StepTimes step(Contender& one) {
    group_.barrier();  // the ranks begin together
    return step_at_once(one);
  }

  // The step that the trainer takes.
  StepTimes step_at_once(Contender& one) {
    const auto times = group_.times();
    const auto traffic = group_.traffic();
    const auto start = Clock::now();
    one.parallel->clear_gradients(*one.optimizer);
    Tensor loss;
    in_phase("forward", [&] { loss = one.model->loss(input_, target_); });
    in_phase("backward", [&] { autograd::backward(loss); });
    in_phase("finish gradients", [&] { one.parallel->finish_gradients(); });
    in_phase("clip", [&] { one.parallel->clip_gradients(*one.optimizer, 1); });
    in_phase("optimizer", [&] { one.parallel->step(*one.optimizer); });
    const double seconds = seconds_since(start);
    one.loss = loss.item();
    const auto after = group_.times();
    return {seconds, after.running - times.running, after.blocked - times.blocked, static_cast<double>(after.calls - times.calls),
            static_cast<double>(group_.traffic().payload_bytes_sent - traffic.payload_bytes_sent)};
  }

  template <class Part>
  static void in_phase(const char* name, Part part) {
    autograd::Profile::begin();
    const TracedPhase phase(name);
    part();
  }

  std::vector<std::vector<StepTimes>> from_all_ranks(const std::vector<StepTimes>& own) {
    const std::size_t count = own.size(), size = static_cast<std::size_t>(group_.size());
    std::vector<StepTimes> all(count * size);
    group_.all_gather(own.data(), all.data(), all.size() * sizeof(StepTimes) / sizeof(double), collectives::DataType::fp64, "step times");
    std::vector<std::vector<StepTimes>> ranks;
    for (std::size_t r = 0; r < size; ++r) ranks.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(r * count), all.begin() + static_cast<std::ptrdiff_t>((r + 1) * count));
    return ranks;
  }

  DdpFigures describe_run() const {
    DdpFigures figures;
    figures.model = said_.model, figures.backend = group_.backend_name();
    if (const auto link = collectives::link_from_environment()) figures.link = to_text(*link);
    figures.parameters = parameter_count(config_);
    figures.batch = said_.batch, figures.sequence = said_.sequence;
    figures.ranks = group_.size(), figures.threads = autograd::threads(), figures.steps = said_.steps;
    return figures;
  }

  void fill_rows(DdpFigures& figures, const std::vector<std::vector<StepTimes>>& ranks) const {
    const std::size_t n = contenders_.size();
    for (std::size_t c = 0; c < n; ++c) {
      std::vector<double> seconds, network, exposed;
      for (std::size_t i = c; i < ranks[0].size(); i += n) {
        const auto slowest = std::max_element(ranks.begin(), ranks.end(), [i](const auto& a, const auto& b) { return a[i].seconds < b[i].seconds; });
        seconds.push_back((*slowest)[i].seconds), network.push_back((*slowest)[i].network), exposed.push_back((*slowest)[i].exposed);
      }
      DdpRow row{contenders_[c].form, contenders_[c].bucket_mb, median(seconds), median(network), median(exposed)};
      row.calls = static_cast<std::int64_t>(ranks[0][c].calls), row.bytes_sent = static_cast<std::int64_t>(ranks[0][c].bytes);
      figures.rows.push_back(row);
    }
    for (auto& row : figures.rows) row.ratio = row.step_seconds / figures.rows.front().step_seconds;
  }

  // Sums in another order differ in the last bits, and AdamW makes more of it where a gradient is nearly zero; a form that lost a
  // gradient would be off by far more.
  void check_that_all_train_alike() {
    std::optional<double> first;
    for (auto& one : contenders_) {
      double mean = one.loss;
      group_.all_reduce(std::span(&mean, 1), ReduceOp::avg);
      if (one.form == "none") continue;
      if (!first) first = mean;
      require(std::abs(mean - *first) <= 1e-3 * std::abs(*first), "{} is at a loss of {} where {} is at {}: one of them trains wrongly", one.form, mean,
              contenders_[1].form, *first);
    }
  }

  // From what a small parameter takes to all gradients at once; the slowest rank's median.
  std::vector<std::pair<double, double>> time_all_reduces(double gradient_bytes) {
    constexpr int samples = 7;
    std::vector<std::pair<double, double>> result;
    for (const double bytes : {2e3, 16e3, 128e3, 1e6, 4e6, 16e6, 64e6}) {
      if (bytes > gradient_bytes && result.size() >= 2) break;
      std::vector<float> data(static_cast<std::size_t>(bytes / sizeof(float)), 1.0f);
      std::vector<double> seconds;
      for (int i = 0; i <= samples; ++i) {
        group_.barrier();
        const auto start = Clock::now();
        group_.all_reduce_async(std::span(data), ReduceOp::avg).wait();  // as the forms do
        if (i > 0) seconds.push_back(seconds_since(start));
      }
      double slowest = median(seconds);
      group_.all_reduce(std::span(&slowest, 1), ReduceOp::max);
      result.emplace_back(static_cast<double>(data.size() * sizeof(float)), slowest);
    }
    return result;
  }

  void trace_one_step_each(DdpFigures& figures) {
    Trace trace;
    for (std::size_t c = 0; c < contenders_.size(); ++c) {
      group_.barrier();
      const std::string name = "step " + figures.rows[c].name();
      const Trace::On on(trace);
      const autograd::Profile profile;
      const TracedPhase whole(name.c_str());
      step_at_once(contenders_[c]);
    }
    group_.barrier();
    figures.traces = gather_traces(trace, group_);
    for (const auto& rank : figures.traces)
      for (const auto& span : rank.spans) take_window(figures, span);
  }

  // From the first rank's beginning of a form's step to the last one's end.
  static void take_window(DdpFigures& figures, const TracedSpan& span) {
    if (span.kind != Trace::Kind::phase || !span.name.starts_with("step ")) return;
    const std::string name = span.name.substr(5);
    const auto found = std::find_if(figures.windows.begin(), figures.windows.end(), [&](const auto& w) { return w.first == name; });
    if (found == figures.windows.end()) return void(figures.windows.push_back({name, {span.start, span.end}}));
    found->second = {std::min(found->second.begin, span.start), std::max(found->second.end, span.end)};
  }

  const Arguments& said_;
  transformer::Config config_;
  ProcessGroup& group_;
  Tensor input_, target_;
  std::vector<Contender> contenders_;
};

// Every form holds a model, its gradients and its optimizer's state.
void check_memory(const Arguments& said, int ranks_here) {
  const auto available = available_memory();
  if (!available) return;
  double contenders = 1;
  for (const auto& form : said.forms) contenders += form == "bucketed" ? static_cast<double>(said.buckets.size()) : 1;
  const double parameters = static_cast<double>(parameter_count(config_of(said)));
  const double need = 4 * parameters * 4 * contenders * ranks_here;
  require(need <= static_cast<double>(*available),
          "{:.0f} forms side by side hold about {:.1f} GB on {} ranks, and {:.1f} GB are available: leave out some with --forms or --buckets, or "
          "take a smaller model",
          contenders, need / 1e9, ranks_here, static_cast<double>(*available) / 1e9);
}

void write_outputs(const Arguments& said, const DdpFigures& figures) {
  fmt::print("{}", ddp_table(figures));
  if (!said.json.empty()) write_json_file(said.json, to_json(figures));
  if (!said.svg.empty()) {
    std::ofstream file(said.svg);
    file << svg_file(bucket_chart(figures.buckets, figures.gradient_bytes(), figures.measured_buckets()));
    file.close();
    require(!file.fail(), "cannot write the drawing to {}: does its folder exist, and may you write there?", said.svg);
  }
  if (!said.report.empty()) {
    write_report(said.report, ddp_report(figures));
    fmt::print("report: {} (open it in a browser)\n", said.report);
  }
  std::fflush(stdout);
}

void run_rank(const Arguments& said, ProcessGroup& group, int ranks_here) {
  autograd::set_threads(said.threads.value_or(std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks_here)));
  DdpBench bench(said, group);
  const DdpFigures figures = bench.measure();
  if (group.rank() == 0) write_outputs(said, figures);
}

}  // namespace

void add_bench_ddp_command(CLI::App& bench) {
  auto* command = bench.add_subcommand("ddp", "Measure the forms of data parallelism: what communication costs, and what is hidden of it");
  const auto said = std::make_shared<Arguments>();
  add_ranks_option(*command, said->ranks);
  add_link_option(*command);
  command->add_option("--model", said->model, fmt::format("One of {}", fmt::join(transformer::config_names(), ", ")))
      ->type_name("NAME")->capture_default_str();
  command->add_option("--batch", said->batch, "Sequences of a step, on each rank")->type_name("N")->check(at_least_one("sequence"))->capture_default_str();
  command->add_option("--sequence", said->sequence, "Tokens of each")->type_name("N")->check(at_least_one("token"))->capture_default_str();
  command->add_option("--forms", said->forms, "Forms to measure")
      ->delimiter(',')->type_name("NAME,...")->check(CLI::IsMember({"naive", "flat", "overlap", "bucketed"}).description(""))->capture_default_str();
  command->add_option("--buckets", said->buckets, "Of bucketed: the most that travels in one call, in 10^6 bytes")
      ->delimiter(',')->type_name("MB,...")->check(CLI::PositiveNumber.description(""))->capture_default_str();
  add_backend_option(*command, said->ranks);
  command->add_option("--threads", said->threads, "Threads that each rank computes on (cores divided by ranks)")
      ->type_name("N")->check(at_least_one("thread"));
  command->add_option("--steps", said->steps, "Steps of each form to measure")->type_name("N")->check(at_least_one("step"))->capture_default_str();
  command->add_option("--json", said->json, "Write the figures there")->type_name("FILE");
  command->add_option("--svg", said->svg, "Draw exposed communication over the size of a bucket there")->type_name("FILE");
  command->add_option("--report", said->report, "Write a page with all figures there")->type_name("FILE");
  command->footer(more);
  command->callback([said] {
    run_on_ranks(said->ranks, [&](ProcessGroup& group, int ranks_here) { run_rank(*said, group, ranks_here); },
                 [&](int, int ranks_here) { check_memory(*said, ranks_here); });
  });
}

}  // namespace ringside::cli
