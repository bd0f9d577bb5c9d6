#include "tests/collectives/simulation/simulation.hpp"

#include <tuple>

#include "base/error.hpp"
#include "tests/collectives/simulation/network.hpp"

namespace ringside::collectives {
namespace {

constexpr int first_pid = 1 << 23;  // no real process has it: the kernel's limit is 2^22

}  // namespace

Process::Process(std::string called, std::uint32_t at_address, int id, std::function<void()> body)
    : name(std::move(called)),
      address(at_address),
      pid(id),
      descriptors(std::make_unique<Descriptors>()),
      fiber_(std::move(body)) {}

Process::~Process() = default;

Simulation::Simulation(std::uint64_t seed) : seed_(seed) {
  require(!here_, "a simulation runs on this thread already");
  here_ = this;
}

Simulation::~Simulation() {
  here_ = nullptr;
}

Clock::duration Simulation::some_time(Seconds least, Seconds most) {
  const double share = random_uniform(seed_, 2, ++drawn_);
  return std::chrono::duration_cast<Clock::duration>(least + share * (most - least));
}

Process& Simulation::start(const std::string& name, std::uint32_t address, Clock::time_point when,
                           std::function<void()> body) {
  const int pid = first_pid + static_cast<int>(processes_.size());
  processes_.push_back(std::make_unique<Process>(name, address, pid, std::move(body)));
  Process& process = *processes_.back();
  at(when, [this, &process] { resume(process); });
  return process;
}

void Simulation::at(Clock::time_point when, std::function<void()> what) {
  events_.push({std::max(when, now_), ++events_made_, std::move(what)});
}

void Simulation::run(Clock::time_point until, const std::function<bool()>& done) {
  while (!done() && !events_.empty() && events_.top().time <= until) {
    const Event event = events_.top();
    events_.pop();
    now_ = std::max(now_, event.time);
    event.what();
  }
}

// A stopped process goes on where it was, as soon as it is continued.
void Simulation::resume(Process& process) {
  if (process.done() || (process.killed_ && !ending_)) return;
  if (process.stopped_until_ > now_ && !ending_) {
    if (!process.stopped_for_ever())
      at(process.stopped_until_, [this, &process] { resume(process); });
    return;
  }
  ++process.turn_;
  process.blocked_ = false;
  running_ = &process;
  process.fiber_.resume();
  running_ = nullptr;
}

void Simulation::call() {
  Process& process = *running_;
  if (ending_) {
    now_ += std::chrono::seconds(1);
    constexpr std::uint64_t most_calls = 100'000;  // to end: deadlines pass within a few hundred
    if (++process.calls > most_calls) process.fiber_.suspend();
    return;
  }
  now_ += some_time(Seconds(2e-7), Seconds(2e-6));
  if (++process.calls == process.fault_at) process.fault();
  const bool goes_on = !process.killed_ && process.stopped_until_ <= now_;
  if (!goes_on || happens(0.1)) block(now_ + some_time(Seconds(0), Seconds(5e-5)));
}

void Simulation::block(Clock::time_point deadline) {
  if (ending_) return;
  Process& process = *running_;
  process.blocked_ = true;
  const std::uint64_t turn = process.turn_;
  if (deadline != Clock::time_point::max())
    at(deadline, [this, &process, turn] {
      if (process.turn_ == turn) resume(process);
    });
  process.fiber_.suspend();
}

void Simulation::wake(Process& process) {
  if (!process.blocked_) return;
  at(now_ + some_time(Seconds(0), Seconds(3e-5)), [this, &process, turn = process.turn_] {
    if (process.turn_ == turn) resume(process);
  });
}

void Simulation::kill(Process& process) {
  if (process.killed_ || process.done()) return;
  note(process.name, "is killed");
  process.killed_ = true;
  process.descriptors->close_all();
}

void Simulation::stop(Process& process, Clock::time_point until) {
  if (process.done()) return;
  const bool for_ever = until == Clock::time_point::max();
  note(process.name, for_ever
                         ? "is stopped"
                         : fmt::format("is stopped for {:.2f} s", Seconds(until - now_).count()));
  process.stopped_until_ = until;
}

bool Simulation::end_all() {
  bool all = true;
  for (const auto& process : processes_) process->descriptors->close_all();
  ending_ = true;
  for (const auto& process : processes_) {
    process->calls = 0;
    resume(*process);
    all = all && process->done();
  }
  return all;
}

// A link keeps the latency that is drawn when it is first used. Each packet varies a little.
Clock::duration Simulation::latency(std::uint32_t from, std::uint32_t to) {
  const auto [link, is_new] = links_.try_emplace({from, to});
  if (is_new)
    link->second = happens(0.2) ? some_time(Seconds(1e-3), Seconds(0.03))
                                : some_time(Seconds(1e-5), Seconds(1e-3));
  return some_time(link->second, 2 * link->second);
}

Clock::time_point Simulation::held_until(std::uint32_t from, std::uint32_t to) const {
  const auto found = held_.find({from, to});
  return found == held_.end() ? Clock::time_point() : found->second;
}

void Simulation::hold(std::uint32_t a, std::uint32_t b, Clock::time_point until) {
  held_[{a, b}] = until;
  held_[{b, a}] = until;
}

}  // namespace ringside::collectives
