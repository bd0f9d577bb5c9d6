#include "cli/pictures/account/account.hpp"

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

std::string head_text(const Account& account) {
  const planning::Machine& machine = account.machine;
  std::string text = fact("model", fmt::format("{}: {} parameters", account.model.name,
                                               count_text(account.parameters)));
  text += fact("source", account.model.source);
  text += fact("plan", plan_text(account.plan, account.model.has_blocks()));
  text += fact("machine", fmt::format("{}: {} GB and {} TFLOP/s per device", machine.name,
                                      planning::number_text(machine.memory / 1e9),
                                      planning::number_text(machine.peak / 1e12)));
  text += fact("state", fmt::format("{} GB in all: {} bytes per parameter, on at least {} of {} GB",
                                    table_number(account.state_bytes / 1e9),
                                    planning::number_text(account.state_bytes / account.parameters),
                                    counted(static_cast<std::int64_t>(
                                                std::ceil(account.state_bytes / machine.memory)),
                                            "device"),
                                    planning::number_text(machine.memory / 1e9)));
  return text;
}

std::string memory_text(const Account& account) {
  const double share = account.most_memory() / account.machine.memory;
  return fmt::format("\nMemory of a rank\n{}  {}: {:.{}f} % of {} GB\n",
                     memory_table(account).text(), account.fits() ? "it fits" : "IT DOES NOT FIT",
                     share * 100, share < 0.1 ? 2 : 0,
                     planning::number_text(account.machine.memory / 1e9));
}

Table traffic_table(const Account& account) {
  Table table{{words("axis", "axis"), words("what", "what"), only_in_json("level"),
               number("calls", "calls", count_text), number("GB", "sent_bytes", scaled(1e-9)),
               number("ms", "seconds", scaled(1e3)),
               number("hidden", "hidden_seconds", scaled(1e3)),
               number("exposed", "", scaled(1e3))}};
  for (const auto& each : account.traffic)
    table.rows.push_back({each.axis, each.what, each.level, each.calls, each.bytes, each.seconds,
                          each.hidden, each.exposed()});
  return table;
}

std::string traffic_text(const Account& account) {
  if (account.traffic.empty()) return "";
  std::vector<std::string> levels;
  for (const auto& each : account.traffic) {
    const std::string level = fmt::format("{} over {}", each.axis, each.level);
    if (std::ranges::find(levels, level) == levels.end()) levels.push_back(level);
  }
  return fmt::format("\nCommunication of a rank of the busiest stage, in one step\n{}  {}\n",
                     traffic_table(account).text(), fmt::join(levels, "; "));
}

std::string time_text(const Account& account) {
  if (account.time.empty()) return "";
  std::string text = fmt::format("\nTime of a step, on the busiest stage\n{}  step: {}\n",
                                 time_table(account).text(), seconds_text(account.step_seconds));
  if (account.plan.mesh.size(parallel::Axis::pp) > 1)
    text += fmt::format("  the pipeline's bubble in closed form: {:.2f} % of the step\n",
                        100 * account.bubble_share);
  text += fmt::format(
      "  {} tokens per step, {} tokens per second\n"
      "  model FLOPs {:.4g}, with recomputation {:.4g}; MFU {:.1f} %\n",
      count_text(account.tokens), count_text(account.tokens / account.step_seconds),
      account.model_flops, account.hardware_flops, 100 * account.utilization);
  return text + fmt::format("  What binds: {}, {:.0f} % of the step.\n", account.binds().part,
                            100 * account.binds().seconds / account.step_seconds);
}

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

}  // namespace

std::vector<std::string> kinds_of(const Account& account) {
  std::vector<std::string> kinds;
  for (const auto& stage : account.stages)
    for (const auto& row : stage.rows)
      if (std::ranges::find(kinds, row.kind) == kinds.end()) kinds.push_back(row.kind);
  return kinds;
}

Table memory_table(const Account& account) {
  Table table{{words("")}};
  for (const auto& stage : account.stages)
    table.head.push_back(
        number(stage.name == "only" ? "GB" : stage.name + ", GB", "", scaled(1e-9)));
  for (const std::string& kind : kinds_of(account)) {
    std::vector<Cell>& row = table.rows.emplace_back(1, kind);
    for (const auto& stage : account.stages) {
      double bytes = 0;
      for (const auto& each : stage.rows)
        if (each.kind == kind) bytes += each.bytes;
      row.emplace_back(bytes);
    }
  }
  std::vector<Cell>& total = table.rows.emplace_back(1, "total");
  for (const auto& stage : account.stages) total.emplace_back(stage.total());
  return table;
}

Table time_table(const Account& account) {
  Table table{{words("part", "part"), number("ms", "seconds", scaled(1e3)),
               number("% of step", "", fixed(1, 100))}};
  for (const auto& row : account.time)
    table.rows.push_back({row.part, row.seconds, row.seconds / account.step_seconds});
  return table;
}

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
  if (plan.recompute != planning::Recompute::none)
    text += fmt::format(", recomputation {}", name_of(plan.recompute));
  if (plan.sequence_parallel) text += ", sequence parallel";
  return text;
}

std::string fact(const char* name, const std::string& text) {
  return fmt::format("{:9}{}\n", name, wrap(text, 80, 9));
}

std::string sources_text(const planning::Machine& machine) {
  return machine.source + (machine.estimates.empty() ? "" : ". Estimates: " + machine.estimates);
}

std::string account_text(const Account& account) {
  return head_text(account) + memory_text(account) + traffic_text(account) + time_text(account);
}

std::string derivation_text(const std::vector<Section>& sections) {
  std::string text;
  for (const Section& section : sections) {
    text += fmt::format("\n{}\n{}\n", section.title, std::string(section.title.size(), '-'));
    for (const Term& term : section.terms) text += term_text(term);
  }
  return text;
}

std::string fit_text(const planning::Fit& fit, const planning::Machine& machine, std::size_t rows) {
  const std::string memory = planning::number_text(machine.memory / 1e9);
  std::string text =
      fmt::format("\n{} plans tried; {} of their meshes fit into {} GB per device\n",
                  count_text(static_cast<double>(fit.tried)), fit.accounts.size(), memory);
  if (fit.accounts.empty())
    return text + fmt::format("  the least that any plan needs is {} GB per device\n",
                              table_number(fit.least_memory / 1e9));
  Table table{{words("mesh"), "ZeRO", "sequences", "again", words("sp"), "GB", "step", "MFU %"}};
  for (std::size_t i = 0; i < std::min(rows, fit.accounts.size()); ++i) {
    const Account& each = fit.accounts[i];
    table.rows.push_back({each.plan.mesh.text(),
                          each.plan.zero == 0 ? "-" : fmt::to_string(each.plan.zero),
                          fmt::format("{} x {}", each.plan.micro_batches, each.plan.micro_batch),
                          name_of(each.plan.recompute), each.plan.sequence_parallel ? "yes" : "-",
                          table_number(each.most_memory() / 1e9), seconds_text(each.step_seconds),
                          fmt::format("{:.1f}", 100 * each.utilization)});
  }
  text += table.text();
  return text +
         "  sequences: micro-batches x sequences; again: recomputation; sp: sequence\n"
         "  parallel; GB: of the rank that needs most\n";
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
          {"micro_batches", plan.micro_batches},
          {"micro_batch", plan.micro_batch},
          {"sequence", plan.sequence}};
}

Json account_json(const Account& account) {
  const Plan& plan = account.plan;
  Json json = plan_json(account.model, account.machine, plan);
  if (plan.mesh.size(parallel::Axis::cp) > 1)
    json.update({{"context", name_of(plan.context.exchange)},
                 {"token_order", name_of(plan.context.order)}});
  json.update({{"zero", plan.zero},
               {"recompute", name_of(plan.recompute)},
               {"sequence_parallel", plan.sequence_parallel},
               {"parameters", account.parameters},
               {"state_bytes", account.state_bytes},
               {"fits", account.fits()}});
  for (const auto& stage : account.stages) {
    Json kinds = Json::object();
    for (const auto& row : stage.rows) kinds[row.kind] = row.bytes;
    json["stages"].push_back({{"stage", stage.index},
                              {"name", stage.name},
                              {"memory_bytes", kinds},
                              {"total_bytes", stage.total()}});
  }
  json["traffic"] = traffic_table(account).json();
  if (account.time.empty()) return json;
  json.update({{"time", time_table(account).json()},
               {"tokens", account.tokens},
               {"model_flops", account.model_flops},
               {"hardware_flops", account.hardware_flops},
               {"bubble_share", account.bubble_share},
               {"step_seconds", account.step_seconds},
               {"mfu", account.utilization},
               {"binds", account.binds().part}});
  return json;
}

}  // namespace ringside::cli
