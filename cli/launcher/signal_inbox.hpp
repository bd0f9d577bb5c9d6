// Signals as bytes in a pipe, so that one poll(2) waits for them and for everything else.
//
// The classic self-pipe (D. J. Bernstein) rather than signalfd(2): a library may have started
// threads before main, a signal is delivered to any thread that does not block it, and a handler
// works in all of them.
#pragma once

#include <array>
#include <csignal>
#include <vector>

#include "cli/launcher/file_descriptor.hpp"

namespace ringside::cli {

// One at a time. Catches SIGINT, SIGTERM, SIGHUP, SIGQUIT, unless this process was started with
// them ignored (nohup), and SIGCHLD; ignores SIGPIPE. Puts everything back when it goes.
class SignalInbox {
 public:
  SignalInbox();
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  int fd() const { return pipe_.read_end.get(); }  // readable when there are signals to take
  std::vector<int> take() const;

  // In a forked child, before it executes a program: the signals as the launcher itself once found
  // them. Async-signal-safe.
  void restore() const;

 private:
  static constexpr std::array<int, 6> handled{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGPIPE};

  Pipe pipe_;
  std::array<struct sigaction, handled.size()> before_{};
};

// Holds back all signals of this thread while it lives: a child forked meanwhile does not run the
// launcher's handlers.
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

}  // namespace ringside::cli
