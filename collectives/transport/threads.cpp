#include "collectives/transport/threads.hpp"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

namespace ringside::collectives {

// The messages from one rank to another, in order.
struct Mailbox {
  struct Message {
    MessageHeader header;
    std::span<const std::byte> payload;  // in the sender's memory
  };
  std::deque<Message> messages;
  std::uint64_t taken = 0;  // how many messages the receiver has released so far
  bool being_read = false;  // the receiver uses the payload of the first message
};

class Mailboxes {
 public:
  explicit Mailboxes(int ranks)
      : size(ranks), boxes(ranks * ranks), changed(ranks), left(ranks, false) {}
  Mailbox& box(int from, int to) { return boxes[from * size + to]; }

  const int size;
  std::mutex mutex;  // guards everything below
  std::vector<Mailbox> boxes;
  std::vector<std::condition_variable> changed;  // [rank] wakes that rank
  std::vector<bool> left;                        // [rank] that rank's transport is gone
};

namespace {

class ThreadsTransport final : public Transport {
 public:
  ThreadsTransport(std::shared_ptr<Mailboxes> shared, int rank)
      : Transport(rank, shared->size), shared_(std::move(shared)) {}

  ~ThreadsTransport() override {
    cancel();
    const std::lock_guard lock(shared_->mutex);
    shared_->left[rank()] = true;
    for (auto& each : shared_->changed) each.notify_one();
  }

  std::string_view name() const override { return "threads"; }
  int window() const override { return 4; }

  void start_send(int peer, const MessageHeader& header,
                  std::span<const std::byte> payload) override {
    const std::lock_guard lock(shared_->mutex);
    outbox(peer).messages.push_back({header, payload});
    sends_.push_back({peer, outbox(peer).taken + outbox(peer).messages.size()});
    shared_->changed[peer].notify_one();
  }

  void post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) override {
    receive_ = {peer, expected, into};
  }

  std::optional<Completion> wait(const Deadline& deadline) override {
    std::unique_lock lock(shared_->mutex);
    for (;;) {
      if (complete_send()) return Completion{Completion::sent, {}};
      if (const auto payload = complete_receive())
        return Completion{Completion::received, *payload};
      if (deadline.expired()) return std::nullopt;
      shared_->changed[rank()].wait_for(lock, deadline.remaining());
    }
  }

  void release() override {
    const std::lock_guard lock(shared_->mutex);
    if (reading()) take_message();
  }

  void cancel() noexcept override {
    std::unique_lock lock(shared_->mutex);
    if (reading()) take_message();
    for (int r = 0; r < size(); ++r) {
      shared_->changed[rank()].wait(lock, [&] { return !outbox(r).being_read; });
      outbox(r).messages.clear();
    }
    sends_.clear();
  }

 private:
  struct Send {
    int peer;
    std::uint64_t number;  // complete when the peer has taken so many messages from this rank
  };
  struct Receive {
    int peer = -1;  // -1: none
    MessageHeader expected;
    std::span<std::byte> into;
  };

  Mailbox& outbox(int peer) const { return shared_->box(rank(), peer); }
  Mailbox& inbox(int peer) const { return shared_->box(peer, rank()); }
  bool reading() const { return receive_.peer >= 0 && inbox(receive_.peer).being_read; }

  void throw_if_left(int peer) const {
    if (shared_->left[peer]) throw ConnectionBroken(peer, "it has left");
  }

  bool complete_send() {
    if (sends_.empty()) return false;
    const auto [peer, number] = sends_.front();
    if (outbox(peer).taken < number) return throw_if_left(peer), false;
    sends_.pop_front();
    return true;
  }

  std::optional<std::span<const std::byte>> complete_receive() {
    if (receive_.peer < 0 || reading()) return std::nullopt;
    Mailbox& box = inbox(receive_.peer);
    if (box.messages.empty()) return throw_if_left(receive_.peer), std::nullopt;
    const auto [header, payload] = box.messages.front();
    check_message(receive_.expected, header, rank(), receive_.peer);
    if (receive_.into.empty()) {
      box.being_read = true;  // until release()
      return payload;
    }
    const std::span<std::byte> into = receive_.into;
    std::memcpy(into.data(), payload.data(), into.size());
    take_message();
    return into;
  }

  void take_message() {
    Mailbox& box = inbox(receive_.peer);
    box.messages.pop_front();
    box.being_read = false;
    ++box.taken;
    shared_->changed[receive_.peer].notify_one();
    receive_.peer = -1;
  }

  std::shared_ptr<Mailboxes> shared_;
  std::deque<Send> sends_;
  Receive receive_;
};

}  // namespace

std::shared_ptr<Mailboxes> make_mailboxes(int size) {
  return std::make_shared<Mailboxes>(size);
}

std::unique_ptr<Transport> make_threads_transport(std::shared_ptr<Mailboxes> mailboxes, int rank) {
  return std::make_unique<ThreadsTransport>(std::move(mailboxes), rank);
}

}  // namespace ringside::collectives
