#include "exercises/judge/collectives/schedules.hpp"

#include <sstream>

#include "base/text/words.hpp"
#include "cli/pictures/schedule/step_table.hpp"
#include "collectives/execution/executor.hpp"
#include "collectives/execution/watchdog.hpp"
#include "collectives/proof/disagreements.hpp"
#include "collectives/proof/lockstep.hpp"

using namespace ringside::collectives;

namespace ringside::exercises {

using namespace collectives;

namespace {

std::string in_words(const std::optional<Send>& send) {
  return send ? fmt::format("{} to rank {}", collectives::in_words(*send), send->to) : "nothing";
}

std::string in_words(const std::optional<Receive>& receive) {
  if (!receive) return "nothing";
  const Send sent{.to = receive->from, .chunks = receive->chunks};  // for the words of its chunks
  return fmt::format("{} from rank {}, to {}", collectives::in_words(sent), receive->from,
                     receive->action == Action::add ? "add" : "overwrite");
}

}  // namespace

Json schedules_up_to(int largest, const std::function<Schedule(int size, int rank)>& make) {
  Json all = Json::array();
  for (int size = 1; size <= largest; ++size) {
    Json ranks = Json::array();
    for (int rank = 0; rank < size; ++rank) ranks.push_back(make(size, rank));
    all.push_back(std::move(ranks));
  }
  return all;
}

Schedules schedules_of(const Json& data, int size) {
  Schedules schedules;
  for (const Json& each : data.at(static_cast<std::size_t>(size - 1)))
    schedules.push_back(each.get<Schedule>());
  return schedules;
}

std::string drawing_of(Collective collective, const Schedules& schedules) {
  const auto size = static_cast<int>(schedules.size());
  const Algorithm& reference = find_algorithm(collective);  // says how many chunks there are
  const std::size_t steps = schedules[0].steps.size();
  for (const Schedule& each : schedules)
    if (each.steps.size() != steps || each.chunks != reference.make(size, 0, 0).chunks) return "";
  std::ostringstream out;
  const cli::StepTable board(out, reference, size, 100, false);
  std::vector<RankState> states =
      start_with_contributions(size, schedules[0].chunks, names_chunks(collective));
  board.draw_start(states);
  for (int step = 0; step < static_cast<int>(steps); ++step) {
    if (!disagreements(schedules, step).empty()) break;
    run_step(schedules, step, states);
    board.draw_step(schedules, step, states);
  }
  return out.str();
}

std::string first_difference(const Schedules& seen, const Schedules& expected) {
  const auto size = static_cast<int>(expected.size());
  for (std::size_t s = 0; s < expected[0].steps.size(); ++s)
    for (int rank = 0; rank < size; ++rank) {
      const Step step = s < seen[rank].steps.size() ? seen[rank].steps[s] : Step{};
      const Step& wanted = expected[rank].steps[s];
      if (step.send != wanted.send)
        return fmt::format("rank {}, step {}: sends {}, expected {}{}", rank, s,
                           in_words(step.send), in_words(wanted.send),
                           size > 2 && step.send && step.send->to == wrap(rank - 1, size) &&
                                   wanted.send && wanted.send->to == wrap(rank + 1, size)
                               ? " (that is left; the ring goes right)"
                               : "");
      if (step.receive != wanted.receive)
        return fmt::format("rank {}, step {}: receives {}, expected {}", rank, s,
                           in_words(step.receive), in_words(wanted.receive));
    }
  for (int rank = 0; rank < size; ++rank)
    if (seen[rank].steps.size() > expected[rank].steps.size())
      return fmt::format("rank {} takes {} steps, expected {}", rank, seen[rank].steps.size(),
                         expected[rank].steps.size());
  return "";
}

std::vector<SentTo> sent_by(const Schedule& schedule, int size) {
  std::vector<SentTo> sent(static_cast<std::size_t>(size));
  for (const Step& step : schedule.steps) {
    if (!step.send) continue;
    SentTo& to = sent.at(static_cast<std::size_t>(step.send->to));
    ++to.messages;
    to.buffers += static_cast<double>(step.send->chunks.count) / schedule.chunks;
  }
  return sent;
}

std::string hub_of(const Schedules& schedules) {
  const auto size = static_cast<int>(schedules.size());
  for (int hub = 0; hub < size; ++hub) {
    bool all = size > 2;
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<SentTo> sent = sent_by(schedules[rank], size);
      for (int to = 0; to < size; ++to)
        if ((rank == hub || to == hub) && rank != to && sent[to].messages == 0) all = false;
    }
    if (all) return fmt::format(": all goes through rank {}", hub);
  }
  return "";
}

std::string fault_of_budget(const Schedules& schedules, double buffers, int messages,
                            const std::function<int(int rank)>& peer) {
  const auto size = static_cast<int>(schedules.size());
  const std::string hub = hub_of(schedules);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<SentTo> sent = sent_by(schedules[rank], size);
    for (int to = 0; to < size; ++to)
      if (to != peer(rank) && sent[to].messages > 0)
        return fmt::format("rank {}: sends {:.2f} n to rank {}, expected {:.2f} n to rank {}{}",
                           rank, sent[to].buffers, to, buffers, peer(rank), hub);
    const SentTo& right = sent[peer(rank)];
    if (std::abs(right.buffers - buffers) > 1e-9)
      return fmt::format("rank {}: sends {:.2f} n to rank {}, expected {:.2f} n{}", rank,
                         right.buffers, peer(rank), buffers, hub);
    if (right.messages != messages)
      return fmt::format("rank {}: sends {:.2f} n in {} messages, expected {}", rank, buffers,
                         right.messages, messages);
  }
  return "";
}

ScheduleRunner::ScheduleRunner(World& world, const Schedule& schedule)
    : schedule_(schedule), connections_(world.connect()) {
  ExecutorOptions options;
  options.timeout = world.timeout();
  options.warn_after = Seconds(0);
  watchdog_ = std::make_unique<collectives::Watchdog>(*connections_.transport,
                                                      *connections_.control, options);
  executor_ = make_executor(*watchdog_, options);
}

ScheduleRunner::~ScheduleRunner() = default;

void ScheduleRunner::run(const Call& call, std::span<const float> input, ChunkRange given,
                         std::span<float> output, ChunkRange kept) {
  watchdog_->begin(++calls_, call);
  watchdog_->set_steps(schedule_.steps.size());
  try {
    const Chunks chunks = Chunks::even(call.count, schedule_.chunks);
    executor_->run({schedule_,
                    call,
                    calls_,
                    chunks,
                    chunks,
                    {reinterpret_cast<const std::byte*>(input.data()), given,
                     reinterpret_cast<std::byte*>(output.data()), kept}});
    watchdog_->end();
  } catch (...) {
    watchdog_->give_up();
  }
}

}  // namespace ringside::exercises
