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
  std::string model, mesh, machine = "h100", schedule = "1f1b", recompute = "none", torus, memory;
  std::string parameters, gradients, activations, ask, json, html;
  std::int64_t micro_batch = 1, micro_batches = 1, sequence = 0, chunks = 1, devices = 8, batch = 0;
  double tokens = 4096;
  int zero = 0;
  bool sequence_parallel = false, fit = false, explain = false, list = false;
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

// Ringside's own sizes train in fp32; published models in 16 bits with fp32 masters.
Types types_from(const Arguments& args) {
  const auto own = transformer::config_names();
  const bool is_own = std::find(own.begin(), own.end(), args.model) != own.end();
  const auto bytes = [&](const std::string& name) {
    return bytes_of_type(name.empty() ? (is_own ? "fp32" : "bf16") : name);
  };
  return {.parameters = bytes(args.parameters),
          .gradients = bytes(args.gradients),
          .activations = bytes(args.activations)};
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
  Plan plan{
      .mesh = parse_mesh(args.mesh),
      .schedule = schedule_named(args.schedule),
      .chunks = args.chunks,
      .micro_batch = args.micro_batch,
      .micro_batches = args.micro_batches,
      .sequence = args.sequence > 0 ? args.sequence : std::max<std::int64_t>(model.sequence, 1),
      .zero = args.zero,
      .recompute = recompute_named(args.recompute),
      .sequence_parallel = args.sequence_parallel,
      .types = types_from(args)};
  if (!args.torus.empty()) take_torus(args.torus, plan);
  if (args.batch > 0) {
    const std::int64_t at_once = plan.mesh.data_ranks() * plan.micro_batch;
    require(args.batch % at_once == 0,
            "a batch of {} sequences does not divide into micro-batches of {} on {} data-parallel "
            "ranks",
            args.batch, plan.micro_batch, plan.mesh.data_ranks());
    plan.micro_batches = args.batch / at_once;
  }
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
    fmt::print(out, "  {:10}{}\n", name, wrapped(find_machine(name).source, 12, 12));
}

// Prints `text`, and the formulas where the user asked for them.
void print(const Arguments& args, const std::string& text, const std::vector<Section>& blackboard) {
  std::FILE* const out = file_beside(args.json);
  fmt::print(out, "{}", text);
  if (args.explain) fmt::print(out, "{}", blackboard_text(blackboard));
  std::fflush(out);
}

void answer_question(const Arguments& args, const Model& model, const Machine& machine) {
  const Answer answer = answer_to(args.ask, {model, plan_from(args, model), machine, args.tokens});
  print(args, answer.text, answer.blackboard);
  if (args.json.empty()) return;
  Json json = {{"question", args.ask}, {"model", model.name}, {"machine", machine.name}};
  json.update(answer.figures);
  json["formulas"] = blackboard_json(answer.blackboard);
  write_json_file(args.json, json);
}

void list_plans(const Arguments& args, const Model& model, const Machine& machine) {
  const FitOptions options{.devices = args.devices,
                           .batch = args.batch > 0 ? args.batch : args.devices,
                           .sequence = args.sequence > 0 ? args.sequence : model.sequence,
                           .types = types_from(args)};
  const Fit found = fit(model, machine, options);
  const std::string title =
      fmt::format("{} on {} x {}, {} sequences of {} tokens a step\n", model.name, args.devices,
                  machine.name, options.batch, options.sequence);
  print(args, title + fit_text(found, machine, 12),
        found.accounts.empty() ? std::vector<Section>{} : found.accounts.front().blackboard);
  if (args.json.empty()) return;
  Json json = {{"tried", found.tried}, {"least_memory_bytes", found.least_memory}};
  json["plans"] = Json::array();
  for (const Account& each : found.accounts) json["plans"].push_back(account_json(each));
  write_json_file(args.json, json);
}

void account_for(const Arguments& args, const Model& model, const Machine& machine) {
  const Account result = account(model, plan_from(args, model), machine);
  print(args, account_text(result), result.blackboard);
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
  if (args.model.empty())
    throw UsageError("--model is required: a name, or the path of a config.json");
  const Model model = find_model(args.model);
  Machine machine = find_machine(args.machine);
  if (!args.memory.empty()) machine.memory = bytes_from(args.memory);
  if (!args.ask.empty()) return answer_question(args, model, machine);
  if (args.fit) return list_plans(args, model, machine);
  account_for(args, model, machine);
}

void add_plan_options(CLI::App& command, Arguments& args) {
  const auto positive = CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}).description("");
  command.add_option("--mesh", args.mesh, "The devices, as in pp=2,dp=4,tp=8 [one device]")
      ->type_name("AXES");
  command
      .add_option("--schedule", args.schedule,
                  fmt::format("{} [1f1b]", fmt::join(schedule_names(), ", ")))
      ->type_name("NAME")
      ->check(one_of(schedule_names()));
  command.add_option("--chunks", args.chunks, "Chunks of a stage, for interleaved [1]")
      ->type_name("V")
      ->check(positive);
  command.add_option("--micro-batch", args.micro_batch, "Sequences of a micro-batch [1]")
      ->type_name("N")
      ->check(positive);
  command
      .add_option("--micro-batches", args.micro_batches,
                  "Micro-batches of a data-parallel rank in one step [1]")
      ->type_name("N")
      ->check(positive);
  command
      .add_option("--batch", args.batch,
                  "Sequences of a step over all ranks; instead of --micro-batches")
      ->type_name("N")
      ->check(positive);
  command.add_option("--sequence", args.sequence, "Tokens of a sequence [the model's longest]")
      ->type_name("N")
      ->check(positive);
  command.add_option("--zero", args.zero, "Stage of ZeRO over the axis dp, 0 to 3 [0]")
      ->type_name("STAGE")
      ->check(CLI::Range(0, 3).description(""));
  command
      .add_option("--recompute", args.recompute,
                  "Activations to compute again: none, selective, full [none]")
      ->type_name("NAME")
      ->check(one_of(recompute_names()));
  command.add_flag("--sequence-parallel", args.sequence_parallel,
                   "Divide what tensor parallel leaves whole by the sequence");
  for (const auto& [name, value, what] :
       {std::tuple("--parameters", &args.parameters, "parameters"),
        std::tuple("--gradients", &args.gradients, "gradients"),
        std::tuple("--activations", &args.activations, "activations")})
    command
        .add_option(name, *value,
                    fmt::format("Type of {}: bf16 or fp32 [bf16; fp32 for Ringside's sizes]", what))
        ->type_name("TYPE")
        ->check(one_of({"bf16", "fp16", "fp32"}));
}

}  // namespace

void add_account_command(CLI::App& app) {
  const auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("account",
                         "Compute what a plan needs: memory, communication, time, what binds")
          ->footer(more);
  command->add_option("--model", args->model, "A name, or the path of a config.json")
      ->type_name("MODEL");
  command
      ->add_option("--machine", args->machine, "Device and network: a name or a JSON file [h100]")
      ->type_name("MACHINE");
  command->add_option("--memory", args->memory, "Memory of a device, such as 80GB [the machine's]")
      ->type_name("SIZE");
  add_plan_options(*command, *args);
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
