// `ringside bench ddp`: what each form of data parallelism pays for communication, beside the same step without any.
#include <algorithm>
#include <fstream>
#include <memory>

#include "autograd/parallel.hpp"
#include "autograd/profile.hpp"
#include "cli/bench_ddp_report.hpp"
#include "cli/command.hpp"
#include "cli/forms_bench.hpp"
#include "cli/median.hpp"
#include "collectives/transport/link.hpp"

namespace ringside::cli {
namespace {

using collectives::ProcessGroup;
using collectives::ReduceOp;

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

struct Arguments : FormsOptions {
  std::string svg, report;
  std::vector<double> buckets{1, 10, 100, 1000};
};

// What is measured, the step without communication first.
std::vector<FormName> names_of(const Arguments& said) {
  std::vector<FormName> names{{"none", {}}};
  for (const auto& form : said.forms) {
    if (form != "bucketed") names.push_back({form, {}});
    else
      for (const double mb : said.buckets) names.push_back({form, mb});
  }
  return names;
}

class DdpBench {
 public:
  DdpBench(const Arguments& said, ProcessGroup& group) : said_(said), group_(group), forms_(said, group, names_of(said)) {}

  // Every rank must call it; the figures are whole on rank 0.
  DdpFigures measure() {
    DdpFigures figures = describe_run();
    figures.rows = forms_.measure();
    figures.all_reduces = time_all_reduces(figures.gradient_bytes());
    figures.buckets = fit_bucket_model(figures.all_reduces);
    if (!said_.report.empty()) trace_one_step_each(figures);
    return figures;
  }

 private:
  DdpFigures describe_run() const {
    DdpFigures figures;
    figures.model = said_.step.model, figures.backend = group_.backend_name();
    if (const auto link = collectives::link_from_environment()) figures.link = to_text(*link);
    figures.parameters = parameter_count(said_.step.config());
    figures.batch = said_.step.batch, figures.sequence = said_.step.sequence;
    figures.ranks = group_.size(), figures.threads = autograd::threads(), figures.steps = said_.step.steps;
    return figures;
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
    for (std::size_t c = 0; c < figures.rows.size(); ++c) {
      const std::string name = "step " + figures.rows[c].text();
      const Trace::On on(trace);
      const autograd::Profile profile;
      const TracedPhase whole(name.c_str());
      forms_.step(c);
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
  ProcessGroup& group_;
  FormsBench forms_;
};

void write_outputs(const Arguments& said, const DdpFigures& figures) {
  std::FILE* const out = file_beside(said.step.json);
  fmt::print(out, "{}", ddp_table(figures));
  if (!said.step.json.empty()) write_json_file(said.step.json, to_json(figures));
  if (!said.svg.empty()) {
    std::ofstream file(said.svg);
    file << svg_file(bucket_chart(figures.buckets, figures.gradient_bytes(), figures.measured_buckets()));
    file.close();
    require(!file.fail(), "cannot write the drawing to {}: does its folder exist, and may you write there?", said.svg);
  }
  if (!said.report.empty()) {
    write_report(said.report, ddp_report(figures));
    fmt::print(out, "report: {} (open it in a browser)\n", said.report);
  }
  std::fflush(out);
}

void run_rank(const Arguments& said, ProcessGroup& group, int ranks_here) {
  autograd::set_threads(said.threads_of_a_rank(ranks_here));
  const DdpFigures figures = DdpBench(said, group).measure();
  if (group.rank() == 0) write_outputs(said, figures);
}

}  // namespace

void add_bench_ddp_command(CLI::App& bench) {
  auto* command = bench.add_subcommand("ddp", "Measure the forms of data parallelism: what communication costs, and what is hidden of it");
  const auto said = std::make_shared<Arguments>();
  said->forms = {"naive", "flat", "overlap", "bucketed"};
  said->add_to(*command);
  command->add_option("--buckets", said->buckets, "Of bucketed: the most that travels in one call, in 10^6 bytes")
      ->delimiter(',')->type_name("MB,...")->check(CLI::PositiveNumber.description(""))->capture_default_str();
  command->add_option("--svg", said->svg, "Draw exposed communication over the size of a bucket there")->type_name("FILE");
  command->add_option("--report", said->report, "Write a page with all figures there")->type_name("FILE");
  command->footer(more);
  command->callback([said] {
    run_on_ranks(said->ranks, [&](ProcessGroup& group, int ranks_here) { run_rank(*said, group, ranks_here); },
                 [&](int ranks, int ranks_here) {
                   require_memory_for(*said, names_of(*said), ranks, ranks_here,
                                      "the forms stand side by side: leave out some with --forms or --buckets, or take a smaller model");
                 });
  });
}

}  // namespace ringside::cli
