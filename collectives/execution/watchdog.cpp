#include "collectives/execution/watchdog.hpp"

#include <algorithm>

#include "base/trace/trace.hpp"
#include "collectives/transport/shm/announcement.hpp"

namespace ringside::collectives {

Watchdog::Watchdog(Transport& inner, ControlChannel& control, const ExecutorOptions& options)
    : Transport(inner.rank(), inner.size(), inner.job()),
      inner_(inner),
      control_(control),
      patience_(std::min(options.timeout, ControlChannel::poll_interval)),
      monitor_(control, options, WaitMonitor::Numbers::of_the_group) {}

void Watchdog::note_sent(const Posted& message, std::uint32_t slice, std::size_t bytes) {
  ++traffic_.messages_sent;
  traffic_.payload_bytes_sent += bytes;
  if (Trace* trace = Trace::here())
    trace->add(Trace::Message{.kind = Trace::Message::sent,
                              .peer = message.peer,
                              .step = static_cast<int>(message.step),
                              .slice = slice,
                              .bytes = bytes,
                              .time = Clock::now()});
}

void Watchdog::post_send(int peer, const MessageHeader& header,
                         std::span<const std::byte> payload) {
  sends_.push_back({peer, header.step});
  note_sent(sends_.back(), header.slice, header.bytes);
  inner_.post_send(peer, header, payload);
}

void Watchdog::announce(const MessageHeader& header, std::span<const Shown> shown) {
  for (int r = 0; r < size(); ++r)
    if (r != rank()) note_sent({r, shown[r].step}, header.step, shown[r].payload.size());
  inner_.announce(header, shown);
}

void Watchdog::post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) {
  receive_ = {peer, expected.step};
  inner_.post_receive(peer, expected, into);
}

std::optional<Completion> Watchdog::wait(const Deadline& deadline) {
  const Posted& awaited = receive_.peer >= 0 || sends_.empty() ? receive_ : sends_.front();
  monitor_.record().waiting_for = receive_.peer;
  monitor_.begin_wait(awaited.peer, awaited.step);
  monitor_.throw_if_interrupted();
  try {
    const Deadline first = Deadline::from_first_look(patience_);
    auto completion = inner_.wait(first);
    if (!completion) monitor_.nothing_came(first.start());
    while (!completion && !deadline.expired()) {
      monitor_.look();
      completion = inner_.wait(Deadline::after(patience_));
    }
    if (completion) note_completion(*completion);
    return completion;
  } catch (const ConnectionBroken& broken) {
    control_.explain(broken.peer, broken.what());
  }
}

void Watchdog::note_completion(const Completion& completion) {
  if (completion.kind == Completion::sent) {
    sends_.pop_front();
  } else {
    monitor_.record().bytes_received += completion.payload.size();
    if (Trace* trace = Trace::here())
      trace->add(Trace::Message{.kind = Trace::Message::received,
                                .peer = receive_.peer,
                                .step = static_cast<int>(receive_.step),
                                .time = Clock::now()});
    receive_ = {};
  }
  monitor_.end_wait();
}

void Watchdog::give_up() {
  try {
    monitor_.give_up();
  } catch (...) {
    cancel();
    throw;
  }
}

void Watchdog::abort(const RankFailure& cause) noexcept {
  monitor_.abort(cause);
  cancel();
}

}  // namespace ringside::collectives
