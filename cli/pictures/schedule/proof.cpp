#include "cli/pictures/schedule/proof.hpp"

#include <algorithm>
#include <exception>
#include <ostream>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "cli/pictures/table.hpp"
#include "collectives/proof/verify_algorithm.hpp"

namespace ringside::cli {

using namespace collectives;

namespace {

std::vector<std::string> findings_of_case(const Algorithm& algorithm, int size, int root) {
  try {
    return verify(algorithm, size, root);
  } catch (const std::exception& error) {
    return {fmt::format("{}: it throws: {}", case_in_words(algorithm, size, root), error.what())};
  }
}

// Counts steps and chunks with max_size ranks as the bounds in the literature do. (All roots cost
// the same.)
void count_costs(Proof& proof) {
  const std::vector<Schedule> schedules = make_schedules(proof.algorithm, proof.max_size);
  for (int rank = 0; rank < proof.max_size; ++rank) {
    const Schedule& schedule = schedules[rank];
    int sent = 0;
    for (const Step& step : schedule.steps)
      sent += step.send && step.send->to != rank ? step.send->chunks.count : 0;
    proof.chunks_sent = std::max(proof.chunks_sent, sent);
    proof.steps = std::max(proof.steps, static_cast<int>(schedule.steps.size()));
    proof.chunks = schedule.chunks;
  }
}

}  // namespace

Proof prove(const Algorithm& algorithm, int max_size) {
  Proof proof{.algorithm = algorithm, .max_size = max_size};
  const auto start = Clock::now();
  for (int size = 1; size <= max_size; ++size) {
    const int roots = has_root(algorithm.collective) ? size : 1;
    for (int root = 0; root < roots; ++root) {
      const std::vector<std::string> found = findings_of_case(algorithm, size, root);
      proof.findings.insert(proof.findings.end(), found.begin(), found.end());
      proof.cases += 1;
      proof.failed += found.empty() ? 0 : 1;
    }
  }
  if (proof.holds()) count_costs(proof);
  proof.time_ms = seconds_since(start) * 1e3;
  return proof;
}

void print_findings(std::ostream& out, const std::vector<std::string>& findings) {
  if (findings.empty()) return;
  constexpr size_t shown = 10;
  out << "\n";
  for (size_t i = 0; i < std::min(shown, findings.size()); ++i) out << findings[i] << "\n";
  if (findings.size() > shown)
    out << fmt::format("... and {} more; --json FILE writes all\n", findings.size() - shown);
}

void print_proofs(std::ostream& out, const std::vector<Proof>& proofs) {
  const Table table{{words("algorithm", "", 18), number("ranks", "", {}, 5),
                     number("roots", "", {}, 5), words("", "", 21), number("steps", "", {}, 5),
                     number("sent", "", {}, 6), number("time", "", fixed(0, 1, " ms"), 6)}};
  out << table.head_line();
  const Proof* above = nullptr;
  for (const Proof& proof : proofs) {
    const Collective collective = proof.algorithm.collective;
    if (!above || above->algorithm.collective != collective)
      out << fmt::format("{}: {}\n", name_of(collective), promise_of(collective));
    above = &proof;
    const std::string verdict =
        proof.holds() ? "proved"
                      : fmt::format("NO: {} of {} cases fail", proof.failed, proof.cases);
    const Cell steps = proof.holds() ? Cell(proof.steps) : Cell();
    const Cell sent =
        proof.holds() ? Cell(fmt::format("{}/{}", proof.chunks_sent, proof.chunks)) : Cell();
    out << table.line_of({proof.algorithm.name, fmt::format("1-{}", proof.max_size),
                          has_root(collective) ? "all" : "-", verdict, steps, sent, proof.time_ms});
  }
  if (!proofs.empty()) {
    out << fmt::format(
        "\nsteps and sent are for {} ranks. sent: the chunks sent by the rank that sends\n"
        "most / the chunks of the buffer.\n",
        proofs[0].max_size);
  }

  for (const Proof& proof : proofs) print_findings(out, proof.findings);
}

Json json_of(const Proof& proof) {
  return {{"collective", name_of(proof.algorithm.collective)},
          {"algorithm", proof.algorithm.name},
          {"max_ranks", proof.max_size},
          {"cases", proof.cases},
          {"holds", proof.holds()},
          {"promise", promise_of(proof.algorithm.collective)},
          {"steps", proof.steps},
          {"chunks", proof.chunks},
          {"chunks_sent", proof.chunks_sent},
          {"time_us", proof.time_ms * 1e3},
          {"findings", proof.findings}};
}

}  // namespace ringside::cli
