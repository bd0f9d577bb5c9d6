#include "collectives/transport/emulated_link.hpp"

#include <algorithm>
#include <deque>

#include <sys/prctl.h>

namespace ringside::collectives {
namespace {

// The kernel may let a sleeper lie for 50 microseconds longer than it asked, as long as many a
// link's latency.
void sleep_precisely() {
  static thread_local const bool done = ::prctl(PR_SET_TIMERSLACK, 1000UL) == 0;
  static_cast<void>(done);
}

class ShapedTransport final : public Transport {
 public:
  ShapedTransport(std::unique_ptr<Transport> inner, std::shared_ptr<Wire> wire)
      : Transport(inner->rank(), inner->size()), inner_(std::move(inner)), wire_(std::move(wire)) {}

  std::string_view name() const override { return inner_->name(); }
  std::uint32_t job() const override { return inner_->job(); }
  CallHistory& history() override {
    return inner_->history();
  }  // it is the inner one that tells it to others
  std::size_t slice_bytes() const override { return inner_->slice_bytes(); }

  // Messages must be at hand while the one before is still leaving, and while it is on the way:
  // else the wire would rest.
  int window() const override { return std::max(inner_->window(), held_at_most); }

  void start_send(int peer, const MessageHeader& header,
                  std::span<const std::byte> payload) override {
    const auto left = wire_->carry(sizeof header + payload.size(), Clock::now());
    held_.push_back({peer, header, payload,
                     left + std::chrono::duration_cast<Clock::duration>(wire_->link().latency)});
  }

  void post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) override {
    inner_->post_receive(peer, expected, into);
  }

  std::optional<Completion> wait(const Deadline& deadline) override {
    sleep_precisely();
    for (;;) {
      hand_over();
      Seconds patience = deadline.remaining();
      if (!held_.empty() && !inner_is_full())
        patience = std::min(patience, Seconds(held_.front().due - Clock::now()));
      if (const auto completion = inner_->wait(Deadline::after(std::max(Seconds(0), patience)))) {
        if (completion->kind == Completion::sent) --under_way_;
        return completion;
      }
      if (deadline.expired()) return std::nullopt;
    }
  }

  void release() override { inner_->release(); }

  void abort(const RankFailure& cause) noexcept override {
    held_.clear();
    inner_->abort(cause);
  }

  void tell_position(const Position& mine) override { inner_->tell_position(mine); }
  std::vector<Position> positions(Seconds patience) override { return inner_->positions(patience); }
  Contact open_door() override { return inner_->open_door(); }

  std::unique_ptr<Transport> found(const std::string& name, int rank,
                                   const std::vector<Contact>& members) override {
    return std::make_unique<ShapedTransport>(inner_->found(name, rank, members), wire_);
  }

 private:
  struct Held {
    int peer;
    MessageHeader header;
    std::span<const std::byte> payload;
    Clock::time_point due;
  };
  static constexpr int held_at_most = 8;

  // Whether the inner transport must first complete a send before it takes the next of those held
  // back.
  bool inner_is_full() const {
    return under_way_ >= inner_->window() || (under_way_ > 0 && peer_ != held_.front().peer);
  }

  void hand_over() {
    while (!held_.empty() && held_.front().due <= Clock::now() && !inner_is_full()) {
      const Held& message = held_.front();
      inner_->post_send(message.peer, message.header, message.payload);
      peer_ = message.peer;
      ++under_way_;
      held_.pop_front();
    }
  }

  std::unique_ptr<Transport> inner_;
  std::shared_ptr<Wire> wire_;
  std::deque<Held> held_;  // in the order in which they leave
  int under_way_ = 0;      // in the inner transport, all to peer_
  int peer_ = -1;
};

}  // namespace

Clock::time_point Wire::carry(std::size_t bytes, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  free_ = std::max(free_, now) + std::chrono::duration_cast<Clock::duration>(link_.busy(bytes));
  return free_;
}

std::unique_ptr<Transport> behind_link(std::unique_ptr<Transport> transport,
                                       const std::optional<Link>& link) {
  if (!link) return transport;
  return std::make_unique<ShapedTransport>(std::move(transport), std::make_shared<Wire>(*link));
}

}  // namespace ringside::collectives
