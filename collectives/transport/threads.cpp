#include "collectives/transport/threads.hpp"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

namespace ringside::collectives {

// The messages from one rank to another, in order.
struct MessageQueue {
  struct Message {
    MessageHeader header;
    std::span<const std::byte> payload;  // in the sender's memory
  };
  std::deque<Message> messages;
  int released = 0;         // messages that the receiver has released; their sends are complete
  bool being_read = false;  // the receiver uses the payload of the first message
};

class MessageQueues {
 public:
  explicit MessageQueues(int ranks)
      : size(ranks), queues(ranks * ranks), changed(ranks), left(ranks, false) {}

  const int size;
  std::mutex mutex;                              // guards everything below
  std::vector<MessageQueue> queues;              // [sender * size + receiver]
  std::vector<std::condition_variable> changed;  // [rank] wakes that rank
  std::vector<bool> left;                        // [rank] that rank's transport is gone
};

namespace {

class ThreadsTransport final : public Transport {
 public:
  ThreadsTransport(std::shared_ptr<MessageQueues> shared, int rank)
      : Transport(rank, shared->size), shared_(std::move(shared)) {}

  ~ThreadsTransport() override {
    cancel();
    const std::lock_guard lock(shared_->mutex);
    shared_->left[rank()] = true;
    for (auto& each : shared_->changed) each.notify_one();
  }

  std::string_view name() const override { return "threads"; }
  int window() const override { return 4; }

  void post_send(int peer, const MessageHeader& header,
                 std::span<const std::byte> payload) override {
    const std::lock_guard lock(shared_->mutex);
    outbox(peer).messages.push_back({header, payload});
    shared_->changed[peer].notify_one();
    receivers_.push_back(peer);
  }

  void post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) override {
    sender_ = peer, expected_ = expected, into_ = into;
  }

  std::optional<Completion> wait(const Deadline& deadline) override {
    std::unique_lock lock(shared_->mutex);
    for (;;) {
      if (!receivers_.empty() && outbox(receivers_.front()).released > 0) {
        --outbox(receivers_.front()).released;
        receivers_.pop_front();
        return Completion{Completion::sent, {}};
      }
      if (sender_ >= 0 && !inbox(sender_).being_read && !inbox(sender_).messages.empty())
        return Completion{Completion::received, receive()};
      throw_if_left();
      if (deadline.expired()) return std::nullopt;
      shared_->changed[rank()].wait_for(lock, deadline.remaining());
    }
  }

  void release() override {
    const std::lock_guard lock(shared_->mutex);
    if (sender_ >= 0 && inbox(sender_).being_read) release_message();
  }

  void cancel() noexcept override {
    release();
    std::unique_lock lock(shared_->mutex);
    for (int r = 0; r < size(); ++r) {
      shared_->changed[rank()].wait(lock, [&] { return !outbox(r).being_read; });
      outbox(r).messages.clear();
    }
  }

 private:
  MessageQueue& outbox(int receiver) const { return shared_->queues[rank() * size() + receiver]; }
  MessageQueue& inbox(int sender) const { return shared_->queues[sender * size() + rank()]; }

  std::span<const std::byte> receive() {
    MessageQueue& queue = inbox(sender_);
    const auto [header, payload] = queue.messages.front();
    check_message(expected_, header, rank(), sender_);
    queue.being_read = true;
    if (into_.empty()) return payload;  // until release()
    std::memcpy(into_.data(), payload.data(), into_.size());
    release_message();
    return into_;
  }

  void release_message() {
    MessageQueue& queue = inbox(sender_);
    queue.messages.pop_front();
    queue.being_read = false;
    ++queue.released;
    shared_->changed[sender_].notify_one();
    sender_ = -1;
  }

  void throw_if_left() const {
    for (const int peer : {receivers_.empty() ? -1 : receivers_.front(), sender_})
      if (peer >= 0 && shared_->left[peer]) throw ConnectionBroken(peer, "it has left");
  }

  std::shared_ptr<MessageQueues> shared_;
  std::deque<int> receivers_;  // of the sends in flight
  int sender_ = -1;            // of the receive; -1: none
  MessageHeader expected_;
  std::span<std::byte> into_;
};

}  // namespace

std::shared_ptr<MessageQueues> make_message_queues(int size) {
  return std::make_shared<MessageQueues>(size);
}

std::unique_ptr<Transport> make_threads_transport(std::shared_ptr<MessageQueues> queues, int rank) {
  return std::make_unique<ThreadsTransport>(std::move(queues), rank);
}

}  // namespace ringside::collectives
