// The watchdog is a transport in front of a group's transport. It looks after the calls that run
// over it, and turns a hang or a failure into a sentence.
//
// It passes every message on, notes where the call stands, and has its wait monitor look round
// while nothing arrives (wait_monitor.hpp).
//
//     watchdog.begin(sequence, call);          throws what ended an earlier call
//     try {
//       executor.run(task);                    over the watchdog
//       watchdog.end();
//     } catch (...) {
//       watchdog.give_up();                    tells every other rank the cause, and throws it
//     }
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "collectives/execution/traffic.hpp"
#include "collectives/execution/wait_monitor.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

class Watchdog final : public Transport {
 public:
  Watchdog(Transport& inner, ControlChannel& control, const ExecutorOptions& options);

  // As those of the monitor.
  void begin(std::uint64_t sequence, const Call& call) { monitor_.begin(sequence, call); }
  void set_steps(std::size_t steps) { monitor_.record().steps = static_cast<std::uint32_t>(steps); }
  void listen_sometimes() { monitor_.listen_sometimes(); }
  void end() { monitor_.end(); }
  void look_while_connecting() { monitor_.look_while_connecting(); }
  void interrupt(const std::string& cause) noexcept { monitor_.interrupt(cause); }
  void set_names(const RankNames& names) { monitor_.set_names(names); }

  // The same, and end what the transport does.
  [[noreturn]] void give_up();
  void abort(const RankFailure& cause) noexcept;

  const Traffic& traffic() const { return traffic_; }  // since it was made

  std::string_view name() const override { return inner_.name(); }
  int window() const override { return inner_.window(); }
  std::size_t slice_bytes() const override { return inner_.slice_bytes(); }
  std::size_t announced_bytes() const override { return inner_.announced_bytes(); }
  void post_send(int peer, const MessageHeader& header,
                 std::span<const std::byte> payload) override;
  void post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) override;
  void announce(const MessageHeader& header, std::span<const Shown> shown) override;

  // Throws Error when it learns that the ranks make different calls, and RankFailure when a rank is
  // gone or nothing has completed for options.timeout.
  std::optional<Completion> wait(const Deadline& deadline) override;
  void release() override { inner_.release(); }
  void cancel() noexcept override { inner_.cancel(); }

 private:
  // A message that is under way.
  struct Posted {
    int peer = -1;  // -1: none
    std::uint32_t step = 0;
  };
  void note_sent(const Posted& message, std::uint32_t slice, std::size_t bytes);
  void note_completion(const Completion& completion);

  Transport& inner_;
  ControlChannel& control_;
  const Seconds patience_;
  WaitMonitor monitor_;
  Traffic traffic_;
  std::deque<Posted> sends_;
  Posted receive_;
};

}  // namespace ringside::collectives
