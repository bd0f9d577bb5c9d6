// The recording of a run for `ringside train --trace` and `--report`. Every rank records a trace of
// a few steps, and the loss of all steps.
//
//     Recording recording(plan);
//     recording.before_step(1);
//     observer.after_step = [&](const auto& report) {
//       recording.after_step(report);
//       ... print, save ...
//       recording.before_step(report.step + 1);
//     };
//     recording.write(group, title, facts);   // on every rank, after the last step
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/kernels/profile.hpp"
#include "base/trace/trace.hpp"
#include "collectives/process_group.hpp"
#include "training/plan/prepare.hpp"
#include "training/trace/trace_file.hpp"
#include "training/trainer.hpp"

namespace ringside::cli {

// The names of the steps in a trace ("step 3") and their windows, each from the first rank's begin
// to the last rank's end.
std::vector<std::pair<std::string, Window>> recorded_steps(const std::vector<RankTrace>& ranks);

class Recording {
 public:
  // The plan must outlive it. Throws Error if the run takes none of plan.trace_steps.
  explicit Recording(const training::Plan& plan)
      : plan_(plan), steps_(training::steps_to_trace(plan)) {}

  void before_step(std::int64_t step);
  void after_step(const training::StepReport& report);

  // Every rank must call it while no asynchronous call is running. Rank 0 writes the files and
  // prints their names. `title` and `facts` are the head of the report.
  void write(collectives::ProcessGroup& group, const std::string& title,
             const std::vector<std::pair<std::string, std::string>>& facts);

 private:
  bool wanted() const { return !plan_.trace.empty() || !plan_.report.empty(); }
  void write_page(const std::vector<RankTrace>& ranks, const std::string& title,
                  const std::vector<std::pair<std::string, std::string>>& facts) const;

  const training::Plan& plan_;
  training::StepRange steps_;  // the first and the last that are recorded
  Trace trace_;
  std::optional<Trace::On> on_;  // while a step is recorded
  std::optional<autograd::Profile> profile_;
  Clock::time_point step_began_;
  std::vector<std::pair<std::int64_t, double>> bits_per_byte_;  // (step, loss)
};

}  // namespace ringside::cli
