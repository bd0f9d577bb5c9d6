// `ringside account`: the memory, communication and time of a plan, computed by formulas before
// anything runs.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/command.hpp"
#include "cli/one_of.hpp"
#include "cli/planning/plan_options.hpp"
#include "cli/report/json_file.hpp"
#include "cli/report/report.hpp"
#include "cli/views/account.hpp"
#include "cli/views/account_page.hpp"
#include "cli/views/account_questions.hpp"
#include "planning/fit.hpp"
#include "planning/formulas/parameters.hpp"

namespace ringside::cli {
namespace {

using namespace planning;

constexpr const char* more = R"(
GB is 10^9 bytes. --mesh names axes from the slowest to the fastest: pp=2,tp=8
puts the 8 ranks of a tensor-parallel group next to each other. Axes: pp
(pipeline), dp (data), fsdp (data, with sharded parameters), tp (tensor).

Models: tiny lab small medium large xl, and published ones: `--list` names them,
and the machines. Or the path of a config.json of Hugging Face.
A machine of your own is a JSON file: see planning/machine.hpp.

Questions of the course (--ask), with --model xxl:
  devices       (a) how many devices hold parameters, gradients and optimizer
  fsdp-devices  (b) how many FSDP needs, with half of the activations whole
  tokens        (c) the least batch that is bound by computing
  splits        (d) the same for every split, and what makes it smaller

Examples:
  ringside account --model xxl --mesh fsdp=16,tp=4
  ringside account --model llama3-70b --fit --devices 64 --memory 80GB
  ringside account --model korthikanti-22b --mesh tp=8 --machine a100 \
      --micro-batch 4 --recompute full --explain
  ringside account --ask devices --model xxl --memory 80GB
  ringside account --ask fsdp-devices --model xxl --memory 95GB --tokens 4096
  ringside account --ask tokens --model xxl --mesh fsdp=16,tp=4 \
      --machine tpu-v5p --torus fsdp=2,tp=1)";

struct Arguments {
  PlanOptions plan;
  std::string machine = "h100", torus, memory, ask, json, html;
  std::int64_t devices = 8;
  double tokens = 4096;
  bool fit = false, explain = false, list = false;
};

// "80GB" or "80" in 10^9 bytes, "80GiB" in 2^30.
double bytes_from(const std::string& text) {
  std::size_t end = 0;
  double number = 0;
  try {
    number = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const std::string unit = text.substr(end);
  if (end == 0 || !(number > 0) || !(unit.empty() || unit == "GB" || unit == "GiB"))
    throw UsageError(fmt::format(
        "--memory {}: a size such as 80GB (10^9 bytes) or 80GiB (2^30) is expected", text));
  return number * (unit == "GiB" ? 1024.0 * 1024 * 1024 : 1e9);
}

// Refuses torus axes other than those of the question.
void take_torus(const std::string& text, Plan& plan) {
  const Mesh torus = parse_mesh(text);
  for (const Mesh::Axis& axis : torus.axes)
    if (axis.name != "fsdp" && axis.name != "tp")
      throw UsageError(
          "--torus says how many axes of a torus carry fsdp and tp, as in "
          "fsdp=2,tp=1");
  plan.torus_fsdp = static_cast<double>(torus.size("fsdp"));
  plan.torus_tp = static_cast<double>(torus.size("tp"));
}

Plan plan_from(const Arguments& args, const Model& model) {
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
    fmt::print(out, "  {:10}{}\n", name, wrapped(sources_text(find_machine(name)), 12, 12));
}

// Prints `text`, and where the user asked for them, the formulas and the sources of the figures.
void print(const Arguments& args, const std::string& text, const std::vector<Section>& blackboard,
           const Machine& machine) {
  std::FILE* const out = file_beside(args.json);
  fmt::print(out, "{}", text);
  if (args.explain)
    fmt::print(out, "{}\nWhere the figures of {} come from\n  {}\n", blackboard_text(blackboard),
               machine.name, wrapped(sources_text(machine), 2, 2));
  std::fflush(out);
}

void answer_question(const Arguments& args, const Model& model, const Machine& machine) {
  const Answer answer = answer_to(args.ask, {model, plan_from(args, model), machine, args.tokens});
  print(args, answer.text, answer.blackboard, machine);
  if (args.json.empty()) return;
  Json json = {{"question", args.ask}, {"model", model.name}, {"machine", machine.name}};
  json.update(answer.figures);
  json["formulas"] = blackboard_json(answer.blackboard);
  write_json_file(args.json, json);
}

void list_plans(const Arguments& args, const Model& model, const Machine& machine) {
  const FitOptions options{.devices = args.devices,
                           .batch = args.plan.batch > 0 ? args.plan.batch : args.devices,
                           .sequence = args.plan.sequence > 0 ? args.plan.sequence : model.sequence,
                           .types = args.plan.types()};
  const Fit found = fit(model, machine, options);
  const std::string title =
      fmt::format("{} on {} x {}, {} sequences of {} tokens a step\n", model.name, args.devices,
                  machine.name, options.batch, options.sequence);
  print(args, title + fit_text(found, machine, 12),
        found.accounts.empty() ? std::vector<Section>{} : found.accounts.front().blackboard,
        machine);
  if (args.json.empty()) return;
  Json json = {{"tried", found.tried}, {"least_memory_bytes", found.least_memory}};
  json["plans"] = Json::array();
  for (const Account& each : found.accounts) json["plans"].push_back(account_json(each));
  write_json_file(args.json, json);
}

void account_for(const Arguments& args, const Model& model, const Machine& machine) {
  const Account result = account(model, plan_from(args, model), machine);
  print(args, account_text(result), result.blackboard, machine);
  if (!args.json.empty()) {
    Json json = account_json(result);
    json["formulas"] = blackboard_json(result.blackboard);
    write_json_file(args.json, json);
  }
  if (args.html.empty()) return;
  write_report(args.html, account_page(result));
  fmt::print(file_beside(args.json), "report: {} (open it in a browser)\n", args.html);
}

void run(const Arguments& args) {
  if (args.list) return list_names(stdout);
  if (args.plan.model.empty())
    throw UsageError("--model is required: a name, or the path of a config.json");
  const Model model = find_model(args.plan.model);
  Machine machine = find_machine(args.machine);
  if (!args.memory.empty()) machine.memory = bytes_from(args.memory);
  if (!args.ask.empty()) return answer_question(args, model, machine);
  if (args.fit) return list_plans(args, model, machine);
  account_for(args, model, machine);
}

}  // namespace

void add_account_command(CLI::App& app) {
  const auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("account",
                         "Compute what a plan needs: memory, communication, time, what binds")
          ->footer(more);
  args->plan.add_model_to(*command);
  command
      ->add_option("--machine", args->machine, "Device and network: a name or a JSON file [h100]")
      ->type_name("MACHINE");
  command->add_option("--memory", args->memory, "Memory of a device, such as 80GB [the machine's]")
      ->type_name("SIZE");
  args->plan.add_to(*command);
  command->add_flag("--fit", args->fit, "List the meshes of --devices that fit, the fastest first");
  command->add_option("--devices", args->devices, "Number of devices for --fit [8]")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100'000}).description(""));
  command->add_option("--ask", args->ask, "A question of the course: see below")
      ->type_name("QUESTION")
      ->check(one_of(question_names()));
  command->add_option("--tokens", args->tokens, "Tokens of a device, for a question [4096]")
      ->type_name("N")
      ->check(CLI::PositiveNumber.description(""));
  command
      ->add_option("--torus", args->torus,
                   "Axes of a torus that carry fsdp and tp, for a question [1 each]")
      ->type_name("AXES");
  command->add_flag("--list", args->list, "List the models and machines with their sources");
  command->add_flag("--explain", args->explain, "Print every formula, its numbers and its source");
  command
      ->add_option("--json", args->json,
                   "Write the figures and formulas to this file; - writes them to standard output")
      ->type_name("FILE");
  command->add_option("--html", args->html, "Write a page with pictures to this file")
      ->type_name("FILE");
  command->callback([args] { run(*args); });
}

}  // namespace ringside::cli
