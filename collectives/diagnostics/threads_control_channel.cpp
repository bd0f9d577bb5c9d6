#include "collectives/diagnostics/threads_control_channel.hpp"

#include <condition_variable>
#include <utility>

namespace ringside::collectives {

class ControlInboxes {
 public:
  struct Inbox {
    std::mutex mutex;  // guards the rest
    std::condition_variable arrived;
    std::vector<std::pair<int, ControlMessage>> messages;  // the sender, and what it says
  };
  explicit ControlInboxes(int size) : of_rank(size) {}
  std::vector<Inbox> of_rank;
};

namespace {

class ThreadsControlChannel final : public ControlChannel {
 public:
  ThreadsControlChannel(std::shared_ptr<ControlInboxes> inboxes, int rank)
      : ControlChannel(rank, static_cast<int>(inboxes->of_rank.size())),
        inboxes_(std::move(inboxes)) {}
  ~ThreadsControlChannel() override { say_goodbye(); }

 private:
  bool send(int peer, const ControlMessage& message) noexcept override {
    auto& inbox = inboxes_->of_rank[peer];
    const std::lock_guard lock(inbox.mutex);
    inbox.messages.emplace_back(rank(), message);
    inbox.arrived.notify_one();
    return true;
  }

  void receive(Seconds patience) override {
    std::vector<std::pair<int, ControlMessage>> arrived;
    auto& inbox = inboxes_->of_rank[rank()];
    {
      std::unique_lock lock(inbox.mutex);
      inbox.arrived.wait_for(lock, patience, [&] { return !inbox.messages.empty(); });
      arrived.swap(inbox.messages);
    }
    for (const auto& [sender, message] : arrived) accept(sender, message);
  }

  std::shared_ptr<ControlInboxes> inboxes_;
};

}  // namespace

std::shared_ptr<ControlInboxes> make_control_inboxes(int size) {
  return std::make_shared<ControlInboxes>(size);
}

std::unique_ptr<ControlChannel> make_threads_control_channel(
    std::shared_ptr<ControlInboxes> inboxes, int rank) {
  return std::make_unique<ThreadsControlChannel>(std::move(inboxes), rank);
}

}  // namespace ringside::collectives
