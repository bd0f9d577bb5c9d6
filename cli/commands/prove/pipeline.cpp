// `ringside prove pipeline`: proves every pipeline schedule for every number of ranks,
// micro-batches and stages.

#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/pipeline/pipeline_proof.hpp"
#include "cli/pictures/schedule/proof.hpp"

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
  if (proofs.size() == 1 && proofs[0].findings.cases == 0) fail("{}", proofs[0].refusal);
  report_proofs(proofs, options.json, "schedules");
}

}  // namespace

void add_prove_pipeline_command(CLI::App& prove) {
  const auto [option, args] = add_command<PipelineOptions>(
      prove, "pipeline",
      "Prove pipeline schedules: no deadlock, each action once; bubble and memory", prove_all);
  option("--schedule NAME", args.schedule,
         "Only " + schedule_names() + "; csv:FILE proves your own [all]");
  option("-n,--ranks N", args.ranks, "Only this number of ranks [1 to 16]", in_range(1, 64));
  option("--micro-batches M", args.micro_batches, "Only this number of micro-batches [1 to 64]",
         in_range(1, 1024));
  option("--stages-per-rank V", args.stages_per_rank,
         "Only this number, for interleaved, looped_bfs and interleaved_zb [1 to 4]",
         in_range(1, 64));
  add_json_option(option, args.json);
}

}  // namespace ringside::cli
