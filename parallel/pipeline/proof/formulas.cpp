#include "parallel/pipeline/proof/formulas.hpp"

#include <algorithm>

namespace ringside::pipeline_parallel {

namespace {

struct Formula {
  std::string_view schedule;
  std::string_view bubble;
  std::string_view in_flight;
  std::optional<double> (*idle)(double p, double m, const Durations& d);
  std::optional<int> (*held)(int p, int m, int v, int r);
};

std::optional<double> idle_of_whole_backward(double p, double, const Durations& d) {
  return (p - 1) * (d.forward + d.backward);
}

std::optional<double> idle_of_late_weights(double p, double m, const Durations& d) {
  const bool holds = m >= p && d.weight <= d.input();
  return holds ? std::optional((p - 1) * (d.forward + d.input() - d.weight)) : std::nullopt;
}

// On a V, where the pattern needs so many micro-batches.
std::optional<double> idle_of_v(double p, double m, double needed, const Durations& d) {
  const bool holds = m >= needed && d.forward == d.weight && d.forward == d.input();
  return holds ? std::optional((p - 1) * d.forward) : std::nullopt;
}

constexpr Formula formulas[] = {
    {"gpipe", "(p-1)/(m+p-1)", "m", idle_of_whole_backward,
     [](int, int m, int, int) { return std::optional(m); }},
    {"1f1b", "(p-1)/(m+p-1)", "min(m, p-r)", idle_of_whole_backward,
     [](int p, int m, int, int r) { return std::optional(std::min(m, p - r)); }},
    {"interleaved", "(p-1)/(vm+p-1)", "(v+1)p-1-2r", idle_of_whole_backward,
     [](int p, int m, int v, int r) {
       return std::optional(std::min(v * m, (v + 1) * p - 1 - 2 * r));
     }},
    {"looped_bfs", "(p-1)/(vm+p-1)", "vm",
     [](double p, double m, const Durations& d) {
       return m >= p ? idle_of_whole_backward(p, m, d) : std::nullopt;
     },
     [](int, int m, int v, int) { return std::optional(v * m); }},
    {"zb_h1", "idle (p-1)(F+I-W)", "min(m, p)", idle_of_late_weights,
     [](int p, int m, int, int) { return std::optional(std::min(m, p)); }},
    {"zb_v", "idle (p-1)F", "2p",
     [](double p, double m, const Durations& d) { return idle_of_v(p, m, 2 * p - 1, d); },
     [](int p, int m, int, int) { return m >= 2 * p - 1 ? std::optional(2 * p) : std::nullopt; }},
    {"interleaved_zb", "idle (p-1)(F+I-W)", "vp", idle_of_late_weights,
     [](int p, int, int v, int) { return std::optional(v * p); }},
    {"dualpipe_v", "idle (p-1)F", "2p+1",
     [](double p, double m, const Durations& d) { return idle_of_v(p, m, 2 * p, d); },
     [](int p, int m, int, int) { return m >= 2 * p ? std::optional(2 * p + 1) : std::nullopt; }},
};

const Formula* formula_of(std::string_view schedule) {
  const auto* found = std::find_if(std::begin(formulas), std::end(formulas),
                                   [&](const Formula& f) { return f.schedule == schedule; });
  return found == std::end(formulas) ? nullptr : found;
}

}  // namespace

std::optional<double> bubble_by_formula(const Setting& setting, const Durations& durations) {
  const Formula* formula = formula_of(setting.schedule);
  if (!formula || durations.message > 0) return std::nullopt;
  const auto idle = formula->idle(setting.ranks, setting.micro_batches, durations);
  if (!idle) return std::nullopt;
  const double work = static_cast<double>(setting.stages_per_rank) * setting.micro_batches *
                      (durations.forward + durations.backward);
  return *idle / (*idle + work);
}

std::optional<int> in_flight_by_formula(const Setting& setting, int rank) {
  const Formula* formula = formula_of(setting.schedule);
  if (!formula) return std::nullopt;
  return formula->held(setting.ranks, setting.micro_batches, setting.stages_per_rank, rank);
}

std::string_view bubble_formula(std::string_view schedule) {
  const Formula* formula = formula_of(schedule);
  return formula ? formula->bubble : "";
}

std::string_view in_flight_formula(std::string_view schedule) {
  const Formula* formula = formula_of(schedule);
  return formula ? formula->in_flight : "";
}

}  // namespace ringside::pipeline_parallel
