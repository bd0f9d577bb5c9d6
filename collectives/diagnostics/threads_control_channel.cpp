#include "collectives/diagnostics/threads_control_channel.hpp"

#include <mutex>
#include <utility>

namespace ringside::collectives {

class ControlInboxes {
 public:
  struct Inbox {
    std::mutex mutex;                                      // guards the rest
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
  ~ThreadsControlChannel() override { leave(); }

 private:
  bool send(int peer, const ControlMessage& message) noexcept override {
    auto& inbox = inboxes_->of_rank[peer];
    const std::lock_guard lock(inbox.mutex);
    inbox.messages.emplace_back(rank(), message);
    return true;
  }

  void receive() override {
    std::vector<std::pair<int, ControlMessage>> arrived;
    auto& inbox = inboxes_->of_rank[rank()];
    {
      const std::lock_guard lock(inbox.mutex);
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
