#include "training/metrics_file.hpp"

#include "base/error.hpp"

namespace ringside::training {
namespace {

std::string rows_until(const std::filesystem::path& path, std::int64_t last,
                       std::int64_t& last_kept) {
  std::ifstream before(path);
  std::string kept;
  for (std::string line; std::getline(before, line);) {
    const auto row = Json::parse_if_possible(line);
    const Json* const step = row ? row->find("step") : nullptr;
    if (step != nullptr && step->is_number_integer() && *step <= last) {
      kept += line + "\n";
      last_kept = *step;
    }
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path, std::int64_t keep_until) : path_(path) {
  if (path.empty()) return;
  const std::string kept = keep_until > 0 ? rows_until(path, keep_until, last_step_) : "";
  file_.open(path, std::ios::trunc);
  file_ << kept << std::flush;
}

void MetricsFile::step(const StepReport& report) {
  Json row = {{"step", report.step},
              {"loss", report.loss},
              {"bits_per_byte", report.bits_per_byte},
              {"tokens_per_second", report.tokens_per_second},
              {"step_seconds", report.step_seconds},
              {"communication_seconds", report.communication_seconds},
              {"gradient_norm", report.gradient_norm},
              {"lr", report.learning_rate}};
  if (report.busiest_expert > 0) row["busiest_expert"] = report.busiest_expert;
  if (!report.members.empty()) row["ranks"] = report.members;
  write(row);
  last_step_ = report.step;
}

void MetricsFile::validation(std::int64_t step, double bits_per_byte) {
  write({{"step", step}, {"validation_bits_per_byte", bits_per_byte}});
}

void MetricsFile::write(const Json& row) {
  if (path_.empty()) return;
  file_ << row.dump() << std::endl;
  require(file_.good(), "cannot write metrics to {}: is the disk full?", path_.string());
}

}  // namespace ringside::training
