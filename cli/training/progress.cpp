#include "cli/training/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace ringside::cli {

using transformer::StepReport;

namespace {

constexpr double repaint_seconds = 0.1;
constexpr std::int64_t lines_in_a_log = 10;

std::size_t width_of(std::FILE* terminal) {
  winsize size{};
  const bool known = ioctl(fileno(terminal), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

std::string in_hours(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(seconds, 0.0)));
  const std::int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, rest);
  return fmt::format("{}:{:02}", minutes, rest);
}

std::string with_unit(double number) {
  for (const auto& [size, unit] : {std::pair(1e9, "G"), std::pair(1e6, "M"), std::pair(1e3, "k")}) {
    if (number >= 0.9995 * size)
      return fmt::format("{:.{}f}{}", number / size, number < 99.95 * size ? 1 : 0, unit);
  }
  return fmt::format("{:.0f}", number);
}

Progress::Progress(std::int64_t first, std::int64_t last, std::FILE* out)
    : first_(first), steps_(last), out_(out), terminal_(isatty(fileno(out)) != 0) {}

void Progress::step(const StepReport& report) {
  const double kept = report.step == first_ + 1 ? 0 : 0.9;
  const auto fade = [kept](double& mean, double value) { mean = kept * mean + (1 - kept) * value; };
  fade(seconds_per_step_, report.step_seconds);
  fade(communication_share_, report.communication_seconds / report.step_seconds);

  const bool last = report.step == steps_;
  if (terminal_) {
    if (!last && seconds_since(last_written_) < repaint_seconds) return;
    last_written_ = Clock::now();
    write_over(line(report));
    return;
  }
  const std::int64_t all = steps_ - first_, taken = report.step - first_,
                     parts = std::min(all, lines_in_a_log);
  const bool due = taken * parts / all != (taken - 1) * parts / all;
  if (due || taken == 1) fmt::print(out_, "{}\n", line(report));
  std::fflush(out_);
}

void Progress::validation(std::int64_t step, double bits_per_byte) {
  if (terminal_) write_over(std::string());
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

std::string Progress::line(const StepReport& report) const {
  const double tokens_per_second =
      report.tokens_per_second * report.step_seconds / seconds_per_step_;
  const double left = static_cast<double>(steps_ - report.step) * seconds_per_step_;
  return fmt::format(
      "step {:>{}}/{}  loss {:.4f}  {:.3f} bits/byte  {} tokens/s  {:.0f} % communication  {} left",
      report.step, std::to_string(steps_).size(), steps_, report.loss, report.bits_per_byte,
      with_unit(tokens_per_second), 100 * communication_share_, in_hours(left));
}

// Cut to the terminal's width: a line that wraps could not be written over. \x1b[K clears what a
// longer line has left.
void Progress::write_over(std::string text) {
  text.resize(std::min(text.size(), width_of(out_) - 1));
  fmt::print(out_, "\r{}\x1b[K", text);
  std::fflush(out_);
  line_open_ = !text.empty();
}

}  // namespace ringside::cli
