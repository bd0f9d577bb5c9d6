#include "cli/pictures/report/recording.hpp"

#include <algorithm>
#include <charconv>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/report/report.hpp"
#include "cli/pictures/report/report_figures.hpp"
#include "cli/pictures/tracks_figure.hpp"

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

Recording::Recording(const RecordingOptions& options, std::int64_t begin, std::int64_t end)
    : options_(options) {
  first_ = std::min(begin + 3, std::max(begin + 1, end - 2)), last_ = std::min(begin + 5, end);
  if (!options.steps) return;
  std::tie(first_, last_) = *options.steps;
  require(first_ <= end && last_ > begin,
          "cannot trace steps {} to {}: the run takes steps {} to {}", first_, last_, begin + 1,
          end);
}

void Recording::before_step(std::int64_t step) {
  if (!options_.wanted() || step < first_ || step > last_) return;
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
  if (!options_.wanted()) return;
  if (options_.mesh) trace_.set_coordinates(options_.mesh->describe(group.rank()));
  const auto ranks = gather_traces(trace_, group);
  if (group.rank() != 0) return;
  if (!options_.trace.empty()) {
    write_json_file(options_.trace.string(), collectives::chrome_trace(ranks));
    fmt::print("trace, for ui.perfetto.dev or chrome://tracing: {}\n", options_.trace.string());
  }
  if (!options_.report.empty()) write_page(ranks, title, facts);
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
  write_report(options_.report.string(), report, stdout);
}

}  // namespace ringside::cli
