#include "cli/pictures/schedule/proof.hpp"

#include <algorithm>
#include <exception>
#include <ostream>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/clock.hpp"
#include "collectives/proof/bounds.hpp"
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
void count_costs(Proof& proof, int root) {
  const std::vector<Schedule> schedules = make_schedules(proof.algorithm, proof.max_size, root);
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

std::string sizes_of(const Proof& proof) {
  if (proof.algorithm.only.empty()) return fmt::format("1-{}", proof.max_size);
  std::set<int> sizes;
  for (const Case& only : proof.algorithm.only) sizes.insert(only.size);
  return fmt::format("{}", fmt::join(sizes, ","));
}

std::string roots_of(const Algorithm& algorithm) {
  if (!has_root(algorithm.collective)) return "-";
  return algorithm.only.empty() ? "all" : "some";
}

}  // namespace

void Findings::add_case(const std::vector<std::string>& found) {
  cases += 1;
  failed += found.empty() ? 0 : 1;
  sentences.insert(sentences.end(), found.begin(), found.end());
}

Proof prove(const Algorithm& algorithm, int max_size) {
  std::vector<Case> cases = algorithm.only;
  for (int size = 1; algorithm.only.empty() && size <= max_size; ++size)
    for (int root = 0; root < (has_root(algorithm.collective) ? size : 1); ++root)
      cases.push_back({size, root});
  const auto largest = std::ranges::max_element(cases, {}, &Case::size);
  Proof proof{.algorithm = algorithm, .max_size = largest->size};
  const auto start = Clock::now();
  for (const auto& [size, root] : cases)
    proof.findings.add_case(findings_of_case(algorithm, size, root));
  if (proof.findings.hold()) count_costs(proof, largest->root);
  proof.findings.time_ms = seconds_since(start) * 1e3;
  return proof;
}

void print_findings(std::ostream& out, const Findings& findings) {
  const auto& sentences = findings.sentences;
  if (sentences.empty()) return;
  constexpr size_t shown = 10;
  out << "\n";
  for (size_t i = 0; i < std::min(shown, sentences.size()); ++i) out << sentences[i] << "\n";
  if (sentences.size() > shown)
    out << fmt::format("... and {} more; --json FILE writes all\n", sentences.size() - shown);
}

// The costs are there if the proof holds.
Table table_of(const std::vector<Proof>& proofs) {
  Table table{{only_in_json("collective"), words("algorithm", "algorithm", 18),
               number("ranks", "", {}, 5), only_in_json("max_ranks"), only_in_json("cases"),
               only_in_json("holds"), only_in_json("promise"), number("roots", "", {}, 5),
               words("", "", 18), number("steps", "steps", {}, 5), only_in_json("chunks"),
               only_in_json("chunks_sent"), number("sent", "", {}, 6), only_in_json("time_us"),
               number("proved in", "", fixed(0, 1, " ms"), 9)}};
  for (const Proof& proof : proofs) {
    const Collective collective = proof.algorithm.collective;
    const Findings& findings = proof.findings;
    const auto cost = [&](Cell figure) { return findings.hold() ? figure : Cell(nullptr); };
    const std::string verdict =
        findings.hold() ? "proved"
                        : fmt::format("NO: {} of {} cases fail", findings.failed, findings.cases);
    table.rows.push_back({name_of(collective), proof.algorithm.name, sizes_of(proof),
                          proof.max_size, findings.cases, findings.hold(), promise_of(collective),
                          roots_of(proof.algorithm), verdict, cost(proof.steps), cost(proof.chunks),
                          cost(proof.chunks_sent),
                          cost(fmt::format("{}/{}", proof.chunks_sent, proof.chunks)),
                          findings.time_ms * 1e3, findings.time_ms});
  }
  return table;
}

CommandResult report_bounds(const std::vector<Algorithm>& algorithms, int size) {
  Table table{{only_in_json("collective"), words("algorithm", "algorithm", 18),
               only_in_json("ranks"), number("steps", "steps", {}, 5), only_in_json("steps_bound"),
               words("", "", 9), number("bytes", "buffers_busiest", fixed(2), 6),
               only_in_json("buffers_busiest_bound"), words("", "", 9),
               number("added", "added_busiest", fixed(2), 6), only_in_json("added_busiest_bound"),
               words("", "", 9), only_in_json("dominated_by")}};
  std::string text = table.head_line(), dominated;
  const Algorithm* before = nullptr;
  for (const Algorithm& algorithm : algorithms) {
    const Collective collective = algorithm.collective;
    const Figures figures = figures_of(make_schedules(algorithm, size)),
                  least = lower_bounds(collective, size);
    std::vector<std::string_view> by;
    for (const Algorithm& other : all_algorithms())
      if (other.collective == collective &&
          dominates(figures_of(make_schedules(other, size)), figures))
        by.push_back(other.name);
    table.rows.push_back({name_of(collective), algorithm.name, size, figures.steps, least.steps,
                          beside_bound(figures.steps, least.steps), figures.bytes, least.bytes,
                          beside_bound(figures.bytes, least.bytes), figures.added, least.added,
                          beside_bound(figures.added, least.added),
                          fmt::format("{}", fmt::join(by, ","))});
    if (!before || before->collective != collective)
      text += fmt::format("{}: at least {} steps, {:.2f} n bytes, {:.2f} n added\n",
                          name_of(collective), least.steps, least.bytes, least.added);
    text += table.line_of(table.rows.back());
    if (!by.empty())
      dominated += fmt::format("  {}: {}{}\n", algorithm.title(), by.front(),
                               by.size() > 1 ? fmt::format(" and {} more", by.size() - 1) : "");
    before = &algorithm;
  }
  text += fmt::format(
      "\nFor {} ranks and a buffer of n bytes. bytes: what the busiest rank sends or\n"
      "receives. added: what the busiest rank adds. Each is beside its lower bound.\n",
      size);
  if (!dominated.empty())
    text += "\nDominated, so no worse in any of the three and better in one is:\n" + dominated;
  return {text, table.json()};
}

void print_table(std::ostream& out, const std::vector<Proof>& proofs) {
  const Table table = table_of(proofs);
  out << table.head_line();
  for (std::size_t i = 0; i < proofs.size(); ++i) {
    const Collective collective = proofs[i].algorithm.collective;
    if (i == 0 || proofs[i - 1].algorithm.collective != collective)
      out << fmt::format("{}: {}\n", name_of(collective), promise_of(collective));
    out << table.line_of(table.rows[i]);
  }
  if (!proofs.empty())
    out << fmt::format(
        "\nsteps and sent are for {} ranks. sent: the chunks sent by the rank that sends\n"
        "most / the chunks of the buffer.\n",
        proofs[0].max_size);
}

}  // namespace ringside::cli
