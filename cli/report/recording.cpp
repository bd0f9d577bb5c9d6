#include "cli/report/recording.hpp"

#include <algorithm>
#include <charconv>

#include "cli/report/json_file.hpp"
#include "cli/report/report.hpp"
#include "cli/report/report_figures.hpp"

namespace ringside::cli {

std::pair<std::int64_t, std::int64_t> parse_steps(const std::string& text) {
  std::int64_t first = 0, last = 0;
  const char* const end = text.data() + text.size();
  auto result = std::from_chars(text.data(), end, first);
  last = first;
  if (result.ec == std::errc() && result.ptr != end && *result.ptr == '-')
    result = std::from_chars(result.ptr + 1, end, last);
  require(result.ec == std::errc() && result.ptr == end && first >= 1 && last >= first,
          "'{}' is not a range of steps: write 3-5, or 4 for one step", text);
  return {first, last};
}

Recording::Recording(const RecordingPlan& plan, std::int64_t begin, std::int64_t end)
    : plan_(plan) {
  first_ = std::min(begin + 3, std::max(begin + 1, end - 2)), last_ = std::min(begin + 5, end);
  if (!plan.steps) return;
  std::tie(first_, last_) = *plan.steps;
  require(first_ <= end && last_ > begin,
          "cannot trace steps {} to {}: the run takes steps {} to {}", first_, last_, begin + 1,
          end);
}

void Recording::before_step(std::int64_t step) {
  if (!plan_.wanted() || step < first_ || step > last_) return;
  on_.emplace(trace_);
  profile_.emplace();
  step_began_ = Clock::now();
}

void Recording::after_step(const transformer::StepReport& report) {
  bits_per_byte_.emplace_back(report.step, report.bits_per_byte);
  if (!on_) return;
  trace_.add({Trace::Track::compute, Trace::Kind::phase, fmt::format("step {}", report.step),
              step_began_, Clock::now()});
  profile_.reset();
  on_.reset();
}

void Recording::write(collectives::ProcessGroup& group, const std::string& title,
                      const std::vector<std::pair<std::string, std::string>>& facts) {
  if (!plan_.wanted()) return;
  const auto ranks = gather_traces(trace_, group);
  if (group.rank() != 0) return;
  if (!plan_.trace.empty()) {
    write_json_file(plan_.trace.string(), chrome_trace(ranks, plan_.one_group));
    fmt::print("trace    {} (open it in ui.perfetto.dev or chrome://tracing)\n",
               plan_.trace.string());
  }
  if (!plan_.report.empty()) {
    write_page(ranks, title, facts);
    fmt::print("report   {} (open it in a browser)\n", plan_.report.string());
  }
  std::fflush(stdout);
}

void Recording::write_page(const std::vector<RankTrace>& ranks, const std::string& title,
                           const std::vector<std::pair<std::string, std::string>>& facts) const {
  Report report{title, facts, {}};
  Window last{0, 0};
  std::string name;
  // The window of the last recorded step, from the first rank's begin to the last rank's end.
  for (const auto& rank : ranks)
    for (const auto& span : rank.spans) {
      if (span.kind != Trace::Kind::phase || !span.name.starts_with("step ")) continue;
      if (span.name == name)
        last = {std::min(last.begin, span.start), std::max(last.end, span.end)};
      else if (span.start >= last.end)
        name = span.name, last = {span.start, span.end};
    }
  if (!name.empty()) {
    report.figures.push_back(tracks_figure("What the ranks did in " + name, ranks, last, 0));
    report.figures.push_back(memory_figure(ranks.front(), last));
  }
  report.figures.push_back(loss_figure(bits_per_byte_));
  write_report(plan_.report.string(), report);
}

}  // namespace ringside::cli
