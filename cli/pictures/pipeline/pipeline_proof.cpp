#include "cli/pictures/pipeline/pipeline_proof.hpp"

#include <algorithm>
#include <cmath>
#include <ostream>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "cli/pictures/numbers.hpp"
#include "parallel/pipeline/lower.hpp"
#include "parallel/pipeline/proof/formulas.hpp"
#include "parallel/pipeline/proof/verify.hpp"

namespace ringside::cli {

using namespace pipeline_parallel;

namespace {

constexpr Durations durations{};  // F = I = W = 1: then every formula holds

std::string case_in_words(const Setting& setting) {
  return fmt::format("{}, {}, {}, {} per rank", setting.schedule, counted(setting.ranks, "rank"),
                     counted(setting.micro_batches, "micro-batch"),
                     counted(setting.stages_per_rank, "stage"));
}

// Sentences about a proved schedule whose figures differ from the formulas.
std::vector<std::string> faults_of_figures(const Setting& setting, const Schedule& schedule) {
  std::vector<std::string> found;
  const double bubble = time_of(lower(schedule), durations).bubble();
  const auto expected = bubble_by_formula(setting, durations);
  if (expected && std::abs(bubble - *expected) > 1e-9)
    found.push_back(fmt::format("the bubble is {:.4f}, by the formula {:.4f}", bubble, *expected));
  const std::vector<int> most = most_in_flight(schedule);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const auto held = in_flight_by_formula(setting, rank);
    if (held && *held != most[rank])
      found.push_back(
          fmt::format("rank {} holds {} activations, by the formula {}", rank, most[rank], *held));
  }
  return found;
}

void prove_case(PipelineProof& proof, const Setting& setting, const Schedule& schedule,
                const std::string& label) {
  std::vector<std::string> found = verify(schedule);
  if (found.empty()) found = faults_of_figures(setting, schedule);
  for (std::string& sentence : found) sentence = label + ": " + sentence;
  proof.findings.add_case(found);
}

void take_example(PipelineProof& proof, const Schedule& schedule) {
  if (!proof.findings.hold()) return;
  proof.ranks = schedule.ranks();
  proof.micro_batches = schedule.micro_batches;
  proof.example_stages_per_rank = schedule.stages() / schedule.ranks();
  proof.bubble = time_of(lower(schedule), durations).bubble();
  const std::vector<int> most = most_in_flight(schedule);
  proof.most_in_flight = *std::ranges::max_element(most);
}

std::string text_of_range(Range range) {
  return range.first == range.last ? fmt::to_string(range.first)
                                   : fmt::format("{}-{}", range.first, range.last);
}

}  // namespace

PipelineProof prove(const Generator& generator, const PipelineCases& cases) {
  PipelineProof proof{.schedule = std::string(generator.name)};
  const auto start = Clock::now();
  Range& stages = proof.stages_per_rank;
  stages.first = std::max(cases.stages_per_rank.first, generator.fewest_stages_per_rank);
  stages.last = std::min(cases.stages_per_rank.last, generator.most_stages_per_rank);
  if (stages.first > stages.last)  // this schedule has a fixed number of stages per rank
    stages = {generator.default_stages_per_rank, generator.default_stages_per_rank};
  Schedule example;
  for (int p = cases.ranks.first; p <= cases.ranks.last; ++p) {
    for (int m = cases.micro_batches.first; m <= cases.micro_batches.last; ++m) {
      for (int v = stages.first; v <= stages.last; ++v) {
        const std::string reason = why_not(generator, p, m, v);
        if (!reason.empty()) {
          proof.refused += 1;
          proof.refusal = reason;
          continue;
        }
        const Setting setting{generator.name, p, m, v};
        example = make_schedule(generator, p, m, v);
        prove_case(proof, setting, example, case_in_words(setting));
      }
    }
  }
  if (proof.findings.cases > 0) take_example(proof, example);
  proof.findings.time_ms = seconds_since(start) * 1e3;
  return proof;
}

PipelineProof prove(const std::string& name, const Schedule& schedule) {
  const int stages_per_rank = schedule.stages() / schedule.ranks();
  PipelineProof proof{.schedule = name, .stages_per_rank = {stages_per_rank, stages_per_rank}};
  const auto start = Clock::now();
  prove_case(proof, {name, schedule.ranks(), schedule.micro_batches, stages_per_rank}, schedule,
             name);
  take_example(proof, schedule);
  proof.findings.time_ms = seconds_since(start) * 1e3;
  return proof;
}

// The figures of the example are there if the proof holds.
Table table_of(const std::vector<PipelineProof>& proofs) {
  Table table{
      {words("schedule", "schedule"), "stages", only_in_json("fewest_stages_per_rank"),
       only_in_json("most_stages_per_rank"), only_in_json("cases"), only_in_json("refused"),
       only_in_json("failed"), only_in_json("holds"), number("proved", ""), only_in_json("ranks"),
       only_in_json("micro_batches"), only_in_json("stages_per_rank"),
       number("bubble", "bubble", fixed(1, 100, " %")), words("by formula"),
       number("holds", "most_in_flight"), words("by formula"), only_in_json("time_us")},
      {},
      0};
  for (const PipelineProof& proof : proofs) {
    const bool shown = proof.findings.hold() && proof.findings.cases > 0;
    const auto example = [&](Cell figure) { return shown ? figure : Cell(nullptr); };
    table.rows.push_back(
        {proof.schedule, text_of_range(proof.stages_per_rank), proof.stages_per_rank.first,
         proof.stages_per_rank.last, proof.findings.cases, proof.refused, proof.findings.failed,
         proof.findings.hold(),
         fmt::format("{} of {}", proof.findings.cases - proof.findings.failed,
                     proof.findings.cases),
         proof.ranks, proof.micro_batches, proof.example_stages_per_rank, example(proof.bubble),
         example(bubble_formula(proof.schedule)), example(proof.most_in_flight),
         example(in_flight_formula(proof.schedule)), proof.findings.time_ms * 1e3});
  }
  return table;
}

void print_table(std::ostream& out, const std::vector<PipelineProof>& proofs) {
  out << table_of(proofs).text();
  int cases = 0, refused = 0;
  double time_ms = 0;
  const PipelineProof* example = nullptr;
  for (const PipelineProof& proof : proofs) {
    cases += proof.findings.cases;
    refused += proof.refused;
    time_ms += proof.findings.time_ms;
    if (!example && proof.findings.hold() && proof.findings.cases > 0) example = &proof;
  }
  if (example)
    out << fmt::format(
        "\nstages: of a rank. bubble: the idle part of a step, with F = I = W. holds: the\n"
        "activations of the rank that holds most. Both for {}, {} and\nthe most stages.\n",
        counted(example->ranks, "rank"), counted(example->micro_batches, "micro-batch"));
  out << fmt::format("{} in {:.1f} s.", counted(cases, "case"), time_ms / 1e3);
  if (refused > 0)
    out << fmt::format(" {} left out: their micro-batches are not a multiple of\nthe ranks.",
                       refused);
  out << "\n";
}

}  // namespace ringside::cli
