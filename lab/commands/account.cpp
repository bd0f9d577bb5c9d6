// `ringside account`: the memory, communication and time of a plan, computed by formulas before
// anything runs.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/options/command.hpp"
#include "cli/options/option_checks.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/report/report.hpp"
#include "cli/pictures/wrap.hpp"
#include "lab/pictures/account.hpp"
#include "lab/pictures/account_report.hpp"
#include "lab/plan_options.hpp"
#include "planning/fit.hpp"
#include "planning/formulas/parameters.hpp"

namespace ringside::cli {
namespace {

using namespace planning;

struct AccountArguments {
  PlanOptions plan;
  std::string machine = "h100", torus, memory, tokens, json, html;
  std::int64_t devices = 8;
  bool fit = false, explain = false, list = false;
};

// "15T", "300B" or "2.5e9": a number with K, M, B or T for 10^3 to 10^12. Throws Error for another
// text, and for less than one.
double parse_count(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view suffix(end, text.data() + text.size());
  double scale = 1;
  for (const auto& [letter, power] : {std::pair("K", 1e3), {"M", 1e6}, {"B", 1e9}, {"T", 1e12}})
    if (suffix == letter) scale = power;
  require(error == std::errc() && (suffix.empty() || scale > 1) && number * scale >= 1 &&
              std::isfinite(number * scale),
          "{} is no number of tokens: write it as 15T, 300B or 1e9", text);
  return number * scale;
}

// How long a plan takes to train on so many tokens.
struct Training {
  double tokens = 0, steps = 0, days = 0, device_hours = 0;
};
std::optional<Training> training_of(const AccountArguments& args, const Account& account) {
  if (args.tokens.empty() || account.time.empty()) return {};
  Training training{.tokens = parse_count(args.tokens)};
  training.steps = std::ceil(training.tokens / account.tokens);
  training.days = training.steps * account.step_seconds / 86400;
  training.device_hours = 24 * training.days * static_cast<double>(account.plan.mesh.ranks());
  return training;
}

void add_training(const std::optional<Training>& training, Json& json) {
  if (!training) return;
  json.update({{"training_tokens", training->tokens},
               {"training_steps", training->steps},
               {"training_days", training->days},
               {"device_hours", training->device_hours}});
}

// Refuses torus axes other than those of the least batch.
void take_torus(const std::string& text, Plan& plan) {
  const MeshShape torus(text, "--torus");
  for (const Axis axis : torus.axes())
    refuse_if(axis != Axis::fsdp && axis != Axis::tp,
              "--torus says how many axes of a torus carry fsdp and tp, as in "
              "fsdp=2,tp=1");
  plan.torus_fsdp = static_cast<double>(torus.size(Axis::fsdp));
  plan.torus_tp = static_cast<double>(torus.size(Axis::tp));
}

Plan plan_from(const AccountArguments& args, const Model& model) {
  Plan plan = args.plan.plan(model);
  if (!args.torus.empty()) take_torus(args.torus, plan);
  return plan;
}

void list_names(std::FILE* out) {
  fmt::print(out, "models (a size of Ringside, or a published model):\n");
  for (const std::string& name : transformer::config_names()) fmt::print(out, "  {}\n", name);
  for (const std::string& name : model_names()) {
    const Model model = find_model(name);
    fmt::print(out, "  {:18}{:>20} parameters\n", name,
               text_with_unit(parameter_count(model).back().value(), Unit::number));
  }
  fmt::print(out, "machines (device and network):\n");
  for (const std::string& name : machine_names())
    fmt::print(out, "  {:10}{}\n", name, wrap(sources_text(find_machine(name)), 80, 12));
}

// Prints `text`, and where the user asked for them, the formulas and the sources of the figures.
void print(const AccountArguments& args, const std::string& text,
           const std::vector<Section>& derivation, const Machine& machine) {
  std::FILE* const out = file_beside(args.json);
  fmt::print(out, "{}", text);
  if (args.explain)
    fmt::print(out, "{}\nWhere the figures of {} come from\n  {}\n", derivation_text(derivation),
               machine.name, wrap(sources_text(machine), 80, 2));
}

void list_plans(const AccountArguments& args, const Model& model, const Machine& machine) {
  const FitOptions options{
      .devices = args.devices,
      .batch = args.plan.batch > 0 ? args.plan.batch : args.devices,
      .sequence = args.plan.given.sequence > 0 ? args.plan.given.sequence : model.sequence,
      .types = args.plan.types()};
  const Fit found = fit(model, machine, options);
  const std::string title =
      fmt::format("{} on {} x {}, {} sequences of {} tokens a step\n", model.name, args.devices,
                  machine.name, options.batch, options.sequence);
  const std::optional<double> tokens =
      args.tokens.empty() ? std::nullopt : std::optional(parse_count(args.tokens));
  print(args, title + fit_text(found, machine, 12, tokens),
        found.accounts.empty() ? std::vector<Section>{} : found.accounts.front().derivation,
        machine);
  if (args.json.empty()) return;
  Json json = {{"tried", found.tried}, {"least_memory_bytes", found.least_memory}};
  json["plans"] = Json::array();
  for (const Account& each : found.accounts) {
    json["plans"].push_back(account_json(each));
    add_training(training_of(args, each), json["plans"].back());
  }
  write_json_file(args.json, json);
}

void account_for(const AccountArguments& args, const Model& model, const Machine& machine) {
  const Account result = account(model, plan_from(args, model), machine);
  Report report = account_report(result);
  const std::optional<Training> training = training_of(args, result);
  if (training)
    report.facts.emplace_back(
        "training", fmt::format("{} tokens take {} steps: {} days, {} device hours",
                                count_text(training->tokens), count_text(training->steps),
                                table_number(training->days), count_text(training->device_hours)));
  print(args, text_of(report), result.derivation, machine);
  if (!args.json.empty()) {
    Json json = account_json(result);
    add_training(training, json);
    json["formulas"] = derivation_json(result.derivation);
    write_json_file(args.json, json);
  }
  report.facts.emplace_back("figures", sources_text(machine));
  write_report(args.html, report, file_beside(args.json));
}

void run(const AccountArguments& args) {
  if (args.list) return list_names(stdout);
  refuse_if(args.plan.model.empty(), "--model is required: a name, or the path of a config.json");
  const Model model = find_model(args.plan.model);
  Machine machine = args.plan.machine(args.machine);
  if (!args.memory.empty()) machine.memory = static_cast<double>(parse_bytes(args.memory));
  require(machine.memory > 0, "--memory {}: a device needs memory", args.memory);
  if (args.fit) return list_plans(args, model, machine);
  account_for(args, model, machine);
}

}  // namespace

void add_account_command(CLI::App& app) {
  const auto [option, args] = add_command(
      app, "account", "Compute what a plan needs: memory, communication, time, what binds", run);
  option("--machine MACHINE", args.machine, "Device and network: a name or a JSON file [h100]");
  option("--memory SIZE", args.memory, "Memory of a device, such as 80GB [the machine's]",
         parsed_by(parse_bytes));
  args.plan.add_to(option);
  option.flag("--fit", args.fit,
              "List the meshes of --devices that fit, with the fastest plan on each");
  option("--tokens N", args.tokens,
         "Tokens to train on, as in 15T or 300B: days and device hours of it",
         parsed_by([](const std::string& text) { parse_count(text); }));
  option("--devices N", args.devices, "Number of devices for --fit [8]", in_range(1, 100'000));
  option("--torus AXES", args.torus,
         "Axes of a torus that carry fsdp and tp, for the least batch [1 each]");
  option.flag("--list", args.list, "List the models and machines with their sources");
  option.flag("--explain", args.explain, "Print every formula, its numbers and its source");
  add_json_option(option, args.json);
  option("--html FILE", args.html, "Write a page with pictures to this file");
}

}  // namespace ringside::cli
