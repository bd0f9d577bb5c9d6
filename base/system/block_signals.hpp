// Keeps signals away from a thread for a while.
#pragma once

#include <csignal>

namespace ringside {

// Blocks all signals of this thread while it exists; those that arrive are delivered afterwards.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { unblock(); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

  void unblock() const { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace ringside
