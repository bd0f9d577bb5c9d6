#include "lab/pictures/account.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/pictures/numbers.hpp"
#include "cli/pictures/wrap.hpp"

namespace ringside::cli {
namespace {

using planning::Account;
using planning::Plan;
using planning::RankMemory;
using planning::Section;
using planning::Term;

std::string term_text(const Term& term) {
  std::string text = fmt::format("  {}\n", wrap(term.what, 80, 2));
  const std::string symbols = term.quantity.symbols(), numbers = term.quantity.numbers();
  const std::string result = text_with_unit(term.value(), term.unit);
  const std::size_t left = 4 + term.symbol.size();
  text += fmt::format("    {}", term.symbol);
  if (symbols != result)
    text += fmt::format(" = {}\n{:>{}}", wrap(symbols, 80, left + 3), "", left);
  // A bare input is its own result.
  if (numbers != symbols && !result.starts_with(numbers))
    text += fmt::format(" = {}\n{:>{}}", wrap(numbers, 80, left + 3), "", left);
  text += fmt::format(" = {}\n", result);
  if (!term.source.empty()) text += fmt::format("    [{}]\n", wrap(term.source, 79, 5));
  return text;
}

// "1f1b"; "v=2" for interleaved, "zb v=2" for interleaved_zb; "-" without a pipeline.
std::string schedule_text(const Plan& plan) {
  if (plan.mesh.size(parallel::Axis::pp) == 1) return "-";
  if (plan.chunks == 1) return plan.schedule;
  if (plan.schedule == "interleaved") return fmt::format("v={}", plan.chunks);
  const std::string name = plan.schedule == "interleaved_zb" ? std::string("zb") : plan.schedule;
  return fmt::format("{} v={}", name, plan.chunks);
}

}  // namespace

std::string count_text(double value) {
  return planning::text_with_unit(std::round(value), planning::Unit::number);
}

std::string seconds_text(double seconds) {
  return planning::text_with_unit(seconds, planning::Unit::seconds);
}

std::string table_number(double value) {
  if (value == 0) return "-";
  if (!std::isfinite(value)) return "infinite";
  const double size = std::abs(value);
  if (size >= 999.5) return count_text(value);
  return fmt::format("{:.{}f}", value, size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.1 ? 3 : 5);
}

Show scaled(double scale) {
  return [scale](double value) { return table_number(value * scale); };
}

std::string plan_text(const Plan& plan, bool has_blocks) {
  std::string text = plan.mesh.text();
  if (plan.mesh.ranks() > 1) text += fmt::format(" ({} devices)", plan.mesh.ranks());
  if (plan.zero > 0) text += fmt::format(", ZeRO stage {}", plan.zero);
  if (plan.mesh.size(parallel::Axis::cp) > 1)
    text +=
        fmt::format(", {}, {} order", name_of(plan.context.exchange), name_of(plan.context.order));
  if (!has_blocks) return text;
  text += fmt::format(", {} of {} of {} tokens", counted(plan.micro_batches, "micro-batch"),
                      counted(plan.micro_batch, "sequence"), plan.sequence);
  if (plan.mesh.size(parallel::Axis::pp) > 1) text += fmt::format(", schedule {}", plan.schedule);
  if (plan.chunks > 1) text += fmt::format(" with {} chunks", plan.chunks);
  if (plan.recompute.kind != planning::Recompute::none)
    text += fmt::format(", recomputation {}", text_of(plan.recompute));
  if (plan.sequence_parallel) text += ", sequence parallel";
  return text;
}

std::string sources_text(const planning::Machine& machine) {
  return machine.source + (machine.estimates.empty() ? "" : ". Estimates: " + machine.estimates);
}

std::string derivation_text(const std::vector<Section>& sections) {
  std::string text;
  for (const Section& section : sections) {
    text += fmt::format("\n{}\n{}\n", section.title, std::string(section.title.size(), '-'));
    for (const Term& term : section.terms) text += term_text(term);
  }
  return text;
}

std::string fit_text(const planning::Fit& fit, const planning::Machine& machine, std::size_t rows,
                     std::optional<double> tokens) {
  const std::string memory = planning::number_text(machine.memory / 1e9);
  std::string text =
      fmt::format("\n{} plans tried; {} of their meshes fit into {} GB per device\n",
                  count_text(static_cast<double>(fit.tried)), fit.accounts.size(), memory);
  if (fit.accounts.empty())
    return text + fmt::format("  the least that any plan needs is {} GB per device\n",
                              table_number(fit.least_memory / 1e9));
  Table table{{words("mesh"), words("pipe"), "ZeRO", "m x b", "again", words("sp"), "GB", "step",
               tokens ? "days" : "MFU %"}};
  for (std::size_t i = 0; i < std::min(rows, fit.accounts.size()); ++i) {
    const Account& each = fit.accounts[i];
    const double steps = std::ceil(tokens.value_or(0) / each.tokens);
    table.rows.push_back({each.plan.mesh.text(), schedule_text(each.plan),
                          each.plan.zero == 0 ? "-" : fmt::to_string(each.plan.zero),
                          fmt::format("{} x {}", each.plan.micro_batches, each.plan.micro_batch),
                          text_of(each.plan.recompute), each.plan.sequence_parallel ? "yes" : "-",
                          table_number(each.most_memory() / 1e9), seconds_text(each.step_seconds),
                          tokens ? table_number(steps * each.step_seconds / 86400)
                                 : fmt::format("{:.1f}", 100 * each.utilization)});
  }
  text += table.text();
  return text +
         "  pipe: schedule of the pipeline, v=2 is interleaved with 2 chunks; m x b:\n"
         "  micro-batches x sequences; again: recomputation; sp: sequence parallel;\n"
         "  GB: of the rank that needs most\n";
}

Json derivation_json(const std::vector<Section>& sections) {
  Json all = Json::array();
  for (const Section& section : sections)
    for (const Term& term : section.terms)
      all.push_back({{"section", section.title},
                     {"symbol", term.symbol},
                     {"what", term.what},
                     {"formula", term.quantity.symbols()},
                     {"numbers", term.quantity.numbers()},
                     {"value", term.value()},
                     {"source", term.source}});
  return all;
}

Json plan_json(const planning::Model& model, const planning::Machine& machine, const Plan& plan) {
  return {{"model", model.name},
          {"machine", machine.name},
          {"mesh", plan.mesh.text()},
          {"devices", plan.mesh.ranks()},
          {"schedule", plan.schedule},
          {"chunks", plan.chunks},
          {"micro_batches", plan.micro_batches},
          {"micro_batch", plan.micro_batch},
          {"sequence", plan.sequence}};
}

}  // namespace ringside::cli
