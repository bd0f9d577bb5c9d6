#include "cli/commands/train/progress.hpp"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "cli/pictures/numbers.hpp"
#include "cli/pictures/terminal.hpp"

namespace ringside::cli {

using training::StepReport;

namespace {

constexpr double repaint_seconds = 0.1;
constexpr std::int64_t lines_in_a_log = 10;

}  // namespace

Progress::Progress(std::int64_t first, std::int64_t last, std::FILE* out)
    : first_(first), steps_(last), out_(out), terminal_(isatty(fileno(out)) != 0) {}

void Progress::step(const StepReport& report) {
  const double weight = report.step == first_ + 1 ? 1 : 0.1;
  const auto average = [weight](double& mean, double value) { mean += weight * (value - mean); };
  average(seconds_per_step_, report.step_seconds);
  average(communication_share_, report.communication_seconds / report.step_seconds);

  const bool last = report.step == steps_;
  if (terminal_) {
    if (!last && seconds_since(last_written_) < repaint_seconds) return;
    last_written_ = Clock::now();
    rewrite_line(line(report, columns()));
    return;
  }
  const std::int64_t all = steps_ - first_, taken = report.step - first_,
                     parts = std::min(all, lines_in_a_log);
  const bool due = taken * parts / all != (taken - 1) * parts / all;
  if (due || taken == 1) fmt::print(out_, "{}\n", line(report, 100));
  std::fflush(out_);
}

void Progress::validation(std::int64_t step, double bits_per_byte) {
  if (terminal_) rewrite_line(std::string());
  const auto places = std::to_string(steps_).size();
  fmt::print(out_, "step {:>{}}/{}  held-out text: {:.3f} bits/byte\n", step, places, steps_,
             bits_per_byte);
  std::fflush(out_);
  line_open_ = false;
}

void Progress::end() {
  if (line_open_) fmt::print(out_, "\n");
  std::fflush(out_);
  line_open_ = false;
}

std::string Progress::line(const StepReport& report, std::size_t columns) const {
  const double tokens_per_second =
      report.tokens_per_second * report.step_seconds / seconds_per_step_;
  const double left = static_cast<double>(steps_ - report.step) * seconds_per_step_;
  const auto line_with = [&](const std::string& bits, const std::string& communication) {
    return fmt::format("step {:>{}}/{}  loss {:.4f}{}  {} tokens/s{}  {} left", report.step,
                       std::to_string(steps_).size(), steps_, report.loss, bits,
                       with_unit(tokens_per_second), communication, duration_text(left));
  };
  const std::string bits = fmt::format("  {:.3f} bits/byte", report.bits_per_byte);
  const std::string communication =
      fmt::format("  {:.0f} % communication", 100 * communication_share_);
  for (const std::string& text : {line_with(bits, communication), line_with("", communication)})
    if (text.size() <= columns) return text;
  return line_with("", "");
}

std::size_t Progress::columns() const {
  return static_cast<std::size_t>(terminal_columns(fileno(out_)).value_or(80)) - 1;
}

// The line is cut to the terminal's width, because a wrapped line cannot be rewritten. \x1b[K
// clears the rest of a longer line before it.
void Progress::rewrite_line(std::string text) {
  text.resize(std::min(text.size(), columns()));
  fmt::print(out_, "\r{}\x1b[K", text);
  std::fflush(out_);
  line_open_ = !text.empty();
}

}  // namespace ringside::cli
