// Judges an all-to-all by its schedules for 1 to 16 ranks.
#include "collectives/proof/disagreements.hpp"
#include "exercises/05-all-to-all/interface.hpp"
#include "exercises/judge/collectives/schedule_faults.hpp"
#include "exercises/judge/program.hpp"

namespace ringside::exercises {
namespace {

using namespace collectives;

constexpr int largest = 16;

Json collect_schedules(World&) {
  return schedules_up_to(largest,
                         [](int size, int rank) { return student_all_to_all(size, rank); });
}

// The first sentence that `fault` says about a rank of a world: "world 3, rank 1: ...".
template <class Fault>
Verdict first_fault(const Run& run, Fault&& fault) {
  for (int size = 1; size <= largest; ++size) {
    const Schedules schedules = schedules_of(run.ranks[0], size);
    for (int rank = 0; rank < size; ++rank) {
      const std::string says = fault(schedules, rank);
      if (!says.empty()) return {{fmt::format("world {}, rank {}{}", size, rank, says)}};
    }
  }
  return {};
}

Verdict judge_promise(const Run& run) {
  return fault_of_promise(Collective::all_to_all, largest,
                          [&run](int size, int) { return schedules_of(run.ranks[0], size); });
}

// One chunk to each other rank. No all-to-all sends less: each chunk has to leave its rank.
Verdict judge_budget(const Run& run) {
  return first_fault(run, [](const Schedules& schedules, int rank) -> std::string {
    const auto size = static_cast<int>(schedules.size());
    const std::vector<SentTo> sent = sent_by(schedules[rank], size);
    if (sent[rank].messages > 0)
      return fmt::format(": sends {} to itself, but its own chunk is already there",
                         in_words(Send{.to = rank, .chunks = {rank}}));
    for (int to = 0; to < size; ++to)
      if (to != rank && (sent[to].messages != 1 || std::abs(sent[to].buffers * size - 1) > 1e-9))
        return fmt::format(": sends {:.2f} n in {} messages to rank {}, expected {:.2f} n in 1{}",
                           sent[to].buffers, sent[to].messages, to, 1.0 / size, hub_of(schedules));
    return "";
  });
}

// In place input and output are one buffer: what a step receives overwrites the input.
Verdict judge_in_place(const Run& run) {
  return first_fault(run, [](const Schedules& schedules, int rank) -> std::string {
    const std::vector<Step>& steps = schedules[rank].steps;
    for (std::size_t s = 0; s < steps.size(); ++s)
      for (std::size_t before = 0; before < s && steps[s].send && steps[s].send->input; ++before) {
        const std::optional<Receive>& received = steps[before].receive;
        const int input = *steps[s].send->input;
        if (received && contains(received->chunks, input))
          return fmt::format(
              ", step {}: sends chunk {} of its input, but in place step {} has overwritten it "
              "with what came from rank {}",
              s, input, before, received->from);
      }
    return "";
  });
}

// In a step a rank has one partner: it receives from the rank that it sends to.
Verdict judge_partner(const Run& run) {
  return first_fault(run, [](const Schedules& schedules, int rank) -> std::string {
    const std::vector<Step>& steps = schedules[rank].steps;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const auto& [send, receive] = steps[s];
      if (send && receive && send->to != receive->from)
        return fmt::format(
            ", step {}: sends to rank {} and receives from rank {}, expected one partner", s,
            send->to, receive->from);
      if (send.has_value() != receive.has_value())
        return fmt::format(", step {}: only {}, expected a swap with its partner", s,
                           send ? "sends" : "receives");
    }
    return "";
  });
}

void by_program() {
  answer_by_program(student_all_to_all, "pairwise_all_to_all");
}

const Judge judge("05-all-to-all",
                  {{"promise", collect_schedules, judge_promise},
                   {"in-place", collect_schedules, judge_in_place},
                   {"budget", collect_schedules, judge_budget},
                   {"partner", collect_schedules, judge_partner}},
                  by_program);

}  // namespace
}  // namespace ringside::exercises
