// MetricsFile: a file of JSON lines, one for each step and one for each validation. Each line is
// flushed, so that other programs can follow the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "base/json.hpp"
#include "training/trainer.hpp"

namespace ringside::training {

class MetricsFile {
 public:
  // An empty path writes nothing. Rows of steps after `keep_until` come from a run that was
  // interrupted after its last checkpoint. They are dropped, because those steps run again.
  MetricsFile(const std::filesystem::path& path, std::int64_t keep_until);

  // Throw Error if the file cannot be written.
  void step(const StepReport& report);
  void validation(std::int64_t step, double bits_per_byte);

  std::int64_t last_step() const { return last_step_; }  // with a row in the file, or 0

 private:
  void write(const Json& row);

  std::filesystem::path path_;
  std::ofstream file_;
  std::int64_t last_step_ = 0;
};

}  // namespace ringside::training
