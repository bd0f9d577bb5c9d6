// `ringside prove pipeline`: proves every pipeline schedule for every number of ranks,
// micro-batches and stages.

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/report/json_file.hpp"
#include "cli/views/pipeline_proof.hpp"

namespace ringside::cli {

namespace {

using namespace pipeline_parallel;

struct PipelineOptions {
  std::string schedule;
  int ranks = 0;  // 0: all
  int micro_batches = 0;
  int stages_per_rank = 0;
  std::string json;
};

constexpr const char* more = R"(
What is proved of each case: every stage runs every micro-batch forward once and
backward once, in an order that can be computed; both ends of each edge between
two ranks agree on the order of messages; no ranks wait for each other in a
circle, neither with buffered sends nor where nothing is buffered; gradients are
reduced after the last backward; bubble and activations are as the formulas say.)";

std::vector<PipelineProof> proofs_of(const PipelineOptions& options) {
  if (options.schedule.starts_with("csv:")) {
    return {prove(options.schedule, make_schedule(options.schedule, options.ranks,
                                                  options.micro_batches, options.stages_per_rank))};
  }
  PipelineCases cases;
  if (options.ranks > 0) cases.ranks = {options.ranks, options.ranks};
  if (options.micro_batches > 0)
    cases.micro_batches = {options.micro_batches, options.micro_batches};
  if (options.stages_per_rank > 0)
    cases.stages_per_rank = {options.stages_per_rank, options.stages_per_rank};
  std::vector<PipelineProof> proofs;
  for (const Generator& generator : all_generators()) {
    if (options.schedule.empty() || options.schedule == generator.name)
      proofs.push_back(prove(generator, cases));
  }
  require(!proofs.empty(),
          "there is no schedule named '{}'; there are {}, and csv:FILE for your own",
          options.schedule, schedule_names());
  return proofs;
}

void prove_all(const PipelineOptions& options) {
  const std::vector<PipelineProof> proofs = proofs_of(options);
  if (proofs.size() == 1 && proofs[0].cases == 0) fail("{}", proofs[0].refusal);
  print_proofs(stream_beside(options.json), proofs);
  std::cout.flush();
  Json json = Json::array();
  int wrong = 0;
  for (const PipelineProof& proof : proofs) {
    json.push_back(json_of(proof));
    if (!proof.holds()) ++wrong;
  }
  if (!options.json.empty()) write_json_file(options.json, json);
  require(wrong == 0, "{} of {} schedules are wrong: see the findings above", wrong, proofs.size());
}

}  // namespace

void add_prove_pipeline_command(CLI::App& prove) {
  const auto options = std::make_shared<PipelineOptions>();
  CLI::App* command = prove.add_subcommand(
      "pipeline", "Prove pipeline schedules: no deadlock, each action once; bubble and memory");
  command->footer(more);
  command
      ->add_option("--schedule", options->schedule,
                   "Only " + schedule_names() + "; csv:FILE proves your own [all]")
      ->type_name("NAME");
  command->add_option("-n,--ranks", options->ranks, "Only this number of ranks [1 to 16]")
      ->type_name("N")
      ->check(CLI::Range(1, 64).description(""));
  command
      ->add_option("--micro-batches", options->micro_batches,
                   "Only this number of micro-batches [1 to 64]")
      ->type_name("M")
      ->check(CLI::Range(1, 1024).description(""));
  command
      ->add_option("--stages-per-rank", options->stages_per_rank,
                   "Only this number, for interleaved [1 to 4]")
      ->type_name("V")
      ->check(CLI::Range(1, 64).description(""));
  command
      ->add_option("--json", options->json,
                   "Write the results to this file; - writes them to standard output and the table "
                   "to standard error")
      ->type_name("FILE");
  command->callback([options] { prove_all(*options); });
}

}  // namespace ringside::cli
