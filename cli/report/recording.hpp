// What `ringside train --trace` and `--report` keep of a run, on every rank: a trace of a few
// steps, and how the loss fell.
//
//     Recording recording(wanted, begin, end);
//     recording.before_step(1);
//     observer.after_step = ... recording.after_step(report); print, save, ...; recording.before_step(report.step + 1) ...
//     recording.write(group, facts);                      after the last, on every rank
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/kernels/profile.hpp"
#include "base/trace.hpp"
#include "cli/report/trace_file.hpp"
#include "collectives/process_group.hpp"
#include "transformer/trainer.hpp"

namespace ringside::cli {

struct RecordingPlan {
  std::filesystem::path trace, report;  // empty: none
  std::optional<std::pair<std::int64_t, std::int64_t>>
      steps;  // first and last; none: the third to the fifth of the run, or those there are
  bool wanted() const { return !trace.empty() || !report.empty(); }
};

// "3-5" or "4". Throws Error.
std::pair<std::int64_t, std::int64_t> parse_steps(const std::string& text);

class Recording {
 public:
  // The steps after `begin` up to `end` will be taken. Throws Error if none of those that are asked
  // for is among them.
  Recording(const RecordingPlan& plan, std::int64_t begin, std::int64_t end);

  void before_step(std::int64_t step);
  void after_step(const transformer::StepReport& report);

  // Every rank must call it, when nothing is under way; rank 0 writes the files, and says so.
  // `title` and `facts` stand above the report.
  void write(collectives::ProcessGroup& group, const std::string& title,
             const std::vector<std::pair<std::string, std::string>>& facts);

 private:
  void write_page(const std::vector<RankTrace>& ranks, const std::string& title,
                  const std::vector<std::pair<std::string, std::string>>& facts) const;

  RecordingPlan plan_;
  std::int64_t first_, last_;
  Trace trace_;
  std::optional<Trace::On> on_;  // while a step is recorded
  std::optional<autograd::Profile> profile_;
  Clock::time_point step_began_;
  std::vector<std::pair<std::int64_t, double>> bits_per_byte_;  // [(step, loss)]
};

}  // namespace ringside::cli
