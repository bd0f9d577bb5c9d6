// What `ringside train` prints on the rank that writes: the lines above the first step, progress,
// samples, a summary, and the command that continues the run. The other ranks print nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/train/progress.hpp"
#include "cli/pictures/report/recording.hpp"
#include "training/run.hpp"
#include "training/summary.hpp"
#include "transformer/data/corpus.hpp"

namespace ringside::cli {

// The command that continues a run from plan.save, also past plan.stop_at if it has stopped there.
using ResumeCommand = std::function<std::string(bool stopped)>;

class RunPrinter final : public training::Reporter {
 public:
  // Both arguments must outlive it.
  RunPrinter(const training::Plan& plan, const ResumeCommand& resume_command)
      : plan_(plan), resume_command_(resume_command), recording_(plan) {}

  void begin(const training::Run& run, const std::string& members) override;
  void before_step(std::int64_t step) override { recording_.before_step(step); }
  void after_step(const training::StepReport& report) override;
  void after_validation(std::int64_t step, double bits_per_byte) override;
  void after_sample(std::int64_t step, const std::vector<std::int32_t>& tokens) override;
  void after_steps(const training::Run& run, std::optional<double> bits_per_byte) override;
  void after_save(const training::Run& run) override;
  void end(const training::Run& run) override;

  // Every rank calls it after the run. Writes --trace and --report.
  void write_recording(collectives::ProcessGroup& group);

 private:
  void print_header(const training::Run& run) const;
  void print_waiting() const;
  void print_summary(std::optional<double> validation) const;

  const training::Plan& plan_;
  const ResumeCommand& resume_command_;
  Recording recording_;
  std::optional<Progress> progress_;  // on the rank that writes, as the summary
  std::optional<training::Summary> summary_;
};

}  // namespace ringside::cli
