#include "collectives/transport/emulated_link.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include <sched.h>
#include <sys/prctl.h>

namespace ringside::collectives {
namespace {

// By default the kernel may wake a thread 50 microseconds late, as long as the latency of many a
// link.
void sleep_precisely() {
  static thread_local const bool done = ::prctl(PR_SET_TIMERSLACK, 1000UL) == 0;
  static_cast<void>(done);
}

class EmulatedLink final : public Transport {
 public:
  EmulatedLink(std::unique_ptr<Transport> inner, std::shared_ptr<Wire> wire)
      : Transport(inner->rank(), inner->size(), inner->job()),
        inner_(std::move(inner)),
        wire_(std::move(wire)) {}

  std::string_view name() const override { return inner_->name(); }
  std::size_t slice_bytes() const override { return inner_->slice_bytes(); }

  // The next message must be posted while the one before departs and while it travels, or else the
  // wire would idle.
  int window() const override { return std::max(inner_->window(), most_held); }

  void post_send(int peer, const MessageHeader& header,
                 std::span<const std::byte> payload) override {
    const auto departure = wire_->carry(sizeof header + payload.size(), Clock::now());
    const auto latency = std::chrono::duration_cast<Clock::duration>(wire_->link().latency);
    held_.push_back({peer, header, payload, departure + latency});
    posted_ = payload.size();
  }

  void post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) override {
    inner_->post_receive(peer, expected, into);
    posted_ = expected.bytes;
  }

  std::optional<Completion> wait(const Deadline& deadline) override {
    sleep_precisely();
    const auto begun = Clock::now();
    for (;;) {
      post_due_messages();
      if (arriving_ && arrives_ <= Clock::now()) return std::exchange(arriving_, std::nullopt);
      const Seconds patience = std::min(deadline.remaining(), sleep_after(Clock::now() - begun));
      const auto completion = inner_->wait(Deadline::after(patience));
      if (completion && completion->kind == Completion::sent) {
        --in_flight_;
        return completion;
      }
      if (completion) {
        arriving_ = completion;
        arrives_ = wire_->receive(sizeof(MessageHeader) + completion->payload.size(), Clock::now());
      } else if (deadline.expired()) {
        return std::nullopt;
      } else if (patience == Seconds(0)) {
        ::sched_yield();
      }
    }
  }

  void release() override { inner_->release(); }

  void cancel() noexcept override {
    held_.clear();
    arriving_.reset();
    inner_->cancel();
  }

 private:
  struct Held {
    int peer;
    MessageHeader header;
    std::span<const std::byte> payload;
    Clock::time_point due;
  };
  static constexpr int most_held = 8;

  // How long a rank may sleep that has waited so long: until the next message can be posted, or has
  // arrived. For a short message it polls at first, and again shortly before, since it would wake
  // up late by a tenth of the message's time or more. Otherwise it leaves its core to computation.
  Seconds sleep_after(Seconds waited) const {
    constexpr Seconds polls_at_first{200e-6}, longest_late{100e-6}, longest_polled{700e-6};
    const bool is_short = posted_ <= 64 * 1024 && wire_->link().busy(posted_) <= longest_polled;
    if (is_short && waited < polls_at_first) return Seconds(0);
    auto due = Clock::time_point::max();
    if (!held_.empty() && !inner_is_full()) due = held_.front().due;
    if (arriving_) due = std::min(due, arrives_);
    const Seconds left = due - Clock::now();
    return std::max(Seconds(0), is_short ? left - longest_late : left);
  }

  // Whether the inner transport must complete a send before it can take the next held message.
  bool inner_is_full() const { return in_flight_ >= inner_->window(); }

  void post_due_messages() {
    while (!held_.empty() && held_.front().due <= Clock::now() && !inner_is_full()) {
      const Held& message = held_.front();
      inner_->post_send(message.peer, message.header, message.payload);
      ++in_flight_;
      held_.pop_front();
    }
  }

  std::unique_ptr<Transport> inner_;
  std::shared_ptr<Wire> wire_;
  std::deque<Held> held_;               // in the order of their departure
  int in_flight_ = 0;                   // sends in the inner transport
  std::size_t posted_ = 0;              // bytes of the last message that was posted
  std::optional<Completion> arriving_;  // taken from the inner transport; complete at `arrives_`
  Clock::time_point arrives_{};
};

}  // namespace

Clock::time_point Wire::carry(std::size_t bytes, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  free_ = std::max(free_, now) + std::chrono::duration_cast<Clock::duration>(link_.busy(bytes));
  return free_;
}

Clock::time_point Wire::receive(std::size_t bytes, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto behind_earlier =
      received_ + std::chrono::duration_cast<Clock::duration>(link_.busy(bytes));
  received_ = std::max(now, behind_earlier);
  return received_;
}

std::unique_ptr<Transport> make_emulated_link(std::unique_ptr<Transport> inner,
                                              std::shared_ptr<Wire> wire) {
  return std::make_unique<EmulatedLink>(std::move(inner), std::move(wire));
}

}  // namespace ringside::collectives
