#include "cli/pictures/report/recording.hpp"

#include <algorithm>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/report/report.hpp"
#include "cli/pictures/report/report_figures.hpp"
#include "cli/pictures/tracks_figure.hpp"

namespace ringside::cli {

void Recording::before_step(std::int64_t step) {
  if (!wanted() || step < steps_.first || step > steps_.second) return;
  on_.emplace(trace_);
  profile_.emplace();
  step_began_ = Clock::now();
}

void Recording::after_step(const training::StepReport& report) {
  bits_per_byte_.emplace_back(report.step, report.bits_per_byte);
  if (!on_) return;
  trace_.add({Trace::Track::compute, Trace::Kind::phase, fmt::format("step {}", report.step),
              step_began_, Clock::now()});
  profile_.reset();
  on_.reset();
}

void Recording::write(collectives::ProcessGroup& group, const std::string& title,
                      const std::vector<std::pair<std::string, std::string>>& facts) {
  if (!wanted()) return;
  if (plan_.mesh.given()) trace_.set_coordinates(plan_.mesh.shape.describe(group.rank()));
  const auto ranks = training::gather_traces(trace_, group);
  if (group.rank() != 0) return;
  if (!plan_.trace.empty()) {
    write_json_file(plan_.trace.string(), training::chrome_trace(ranks));
    fmt::print("trace, for ui.perfetto.dev or chrome://tracing: {}\n", plan_.trace.string());
  }
  if (!plan_.report.empty()) write_page(ranks, title, facts);
  std::fflush(stdout);
}

std::vector<std::pair<std::string, Window>> recorded_steps(const std::vector<RankTrace>& ranks) {
  std::vector<std::pair<std::string, Window>> steps;
  for (const auto& rank : ranks)
    for (const auto& span : rank.spans) {
      if (!span.is_step()) continue;
      const auto found = std::ranges::find(steps, span.name, &decltype(steps)::value_type::first);
      if (found == steps.end())
        steps.push_back({span.name, {span.start, span.end}});
      else
        found->second = {std::min(found->second.begin, span.start),
                         std::max(found->second.end, span.end)};
    }
  return steps;
}

void Recording::write_page(const std::vector<RankTrace>& ranks, const std::string& title,
                           const std::vector<std::pair<std::string, std::string>>& facts) const {
  Report report{title, facts, {}};
  for (const auto& [name, window] : recorded_steps(ranks)) {
    Figure tracks = tracks_figure("What the ranks did in " + name, ranks, window, 0);
    Figure memory = memory_figure(ranks.front(), window);
    tracks.choice = memory.choice = name;
    report.figures.push_back(std::move(tracks));
    report.figures.push_back(std::move(memory));
  }
  report.figures.push_back(loss_figure(bits_per_byte_));
  write_report(plan_.report.string(), report, stdout);
}

}  // namespace ringside::cli
