// A simulated machine room: processes, a clock, a network and tables of descriptors, on one thread.
//
// The processes run the same code as in production. Where it calls the system (a socket, the clock,
// its process ID), the linker passes the call to system_calls.cpp instead, and that asks the
// simulation which runs on this thread. Each process is a fiber: it runs until a call blocks, or
// until the seed decides that another one shall run. Nothing but the seed decides what happens: the
// order of the processes, the delay of each packet, how many bytes a call reads or writes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "exercises/judge/gpu/fiber.hpp"

namespace ringside::collectives {

class Descriptors;  // network.hpp
struct Socket;

struct SocketAddress {
  std::uint32_t host = 0;  // IPv4, in this machine's byte order
  std::uint16_t port = 0;
  auto operator<=>(const SocketAddress&) const = default;
};

class Process {
 public:
  Process(std::string called, std::uint32_t at_address, int id, std::function<void()> body);
  ~Process();

  const std::string name;
  const std::uint32_t address;
  const int pid;
  std::unique_ptr<Descriptors> descriptors;

  // Called once, when the process makes its `fault_at`-th call to the system.
  std::uint64_t calls = 0, fault_at = 0;
  std::function<void()> fault;

  bool done() const { return fiber_.done(); }
  bool killed() const { return killed_; }
  bool stopped_for_ever() const { return !killed_ && stopped_until_ == Clock::time_point::max(); }

 private:
  friend class Simulation;
  exercises::Fiber fiber_;
  std::uint64_t turn_ = 0;  // a wake-up counts only in the turn for which it was made
  bool blocked_ = true, killed_ = false;
  Clock::time_point stopped_until_{};
};

class Simulation {
 public:
  struct Line {
    Clock::time_point time;
    std::string who, text;
  };

  explicit Simulation(std::uint64_t seed);
  ~Simulation();

  // That runs on this thread; nullptr: none, and the process that is running in it, if any.
  static Simulation* here() { return here_; }
  static Process* process() { return here_ ? here_->running_ : nullptr; }

  Clock::time_point now() const { return now_; }
  Seconds elapsed() const { return now_ - begin(); }
  static Clock::time_point begin() { return Clock::time_point(std::chrono::hours(1)); }

  // A number in 0..n-1, and whether something of probability `p` happens.
  std::uint64_t below(std::uint64_t n) { return random_below(n, seed_, 0, ++drawn_); }
  bool happens(double p) { return random_uniform(seed_, 1, ++drawn_) < p; }
  Clock::duration some_time(Seconds least, Seconds most);

  Process& start(const std::string& name, std::uint32_t address, Clock::time_point when,
                 std::function<void()> body);
  void at(Clock::time_point when, std::function<void()> what);

  // Runs until `done()`, until the time is over, or until nothing can happen any more.
  void run(Clock::time_point until, const std::function<bool()>& done);

  // For the calls of the running process. Each takes a moment, and another process may run first.
  void call();
  void block(Clock::time_point deadline);  // returns at the deadline, or after wake()
  void wake(Process& process);

  void kill(Process& process);  // the kernel closes its descriptors
  void stop(Process& process, Clock::time_point until);

  // Ends all processes, so that they free what they have: their calls fail, and time flies. Returns
  // false if one goes on for ever nevertheless.
  bool end_all();
  bool ending() const { return ending_; }

  void note(const std::string& who, const std::string& text) { lines.push_back({now_, who, text}); }
  std::vector<Line> lines;

  // ---- The network. Links are between hosts, in both directions.
  Clock::duration latency(std::uint32_t from, std::uint32_t to);
  Clock::time_point held_until(std::uint32_t from, std::uint32_t to) const;
  void hold(std::uint32_t a, std::uint32_t b, Clock::time_point until);
  std::map<SocketAddress, std::weak_ptr<Socket>> ports;  // the sockets that are bound
  std::map<std::uint32_t, std::uint16_t> last_port;      // [host] that bind() has chosen
  double pieces = 0;  // the probability that a call moves fewer bytes than it could

 private:
  struct Event {
    Clock::time_point time;
    std::uint64_t number;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::tie(other.time, other.number) < std::tie(time, number);
    }
  };
  void resume(Process& process);

  static inline constinit thread_local Simulation* here_ = nullptr;
  const std::uint64_t seed_;
  std::uint64_t drawn_ = 0, events_made_ = 0;
  Clock::time_point now_ = begin();
  std::priority_queue<Event> events_;
  std::vector<std::unique_ptr<Process>> processes_;
  Process* running_ = nullptr;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Seconds> links_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Clock::time_point> held_;
  bool ending_ = false;
};

}  // namespace ringside::collectives
