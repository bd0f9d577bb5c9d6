// Signals as bytes in a pipe, so that one poll(2) waits for signals and for everything else.
//
// This is the self-pipe trick (D. J. Bernstein) rather than signalfd(2). A library may start
// threads before main(), and the kernel delivers a signal to any thread that does not block it:
// signalfd would need every thread to block it, while a handler runs in whichever thread it hits.
#pragma once

#include <array>
#include <csignal>
#include <vector>

#include "cli/launcher/processes/pipe.hpp"

namespace ringside::cli {

// Catches SIGINT, SIGTERM, SIGHUP and SIGQUIT, unless the process was started with them ignored
// (nohup), and SIGCHLD. Ignores SIGPIPE. The destructor restores all of them. There may be only one
// SignalPipe at a time.
class SignalPipe {
 public:
  SignalPipe();
  ~SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  int fd() const { return pipe_.read_end.get(); }  // readable when there are signals to take
  std::vector<int> take() const;

  // For a forked child before it calls exec: restores the signal handling that the launcher
  // inherited. Async-signal-safe.
  void restore() const;

 private:
  static constexpr std::array<int, 6> handled{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGPIPE};

  Pipe pipe_;
  std::array<struct sigaction, handled.size()> before_{};
};

}  // namespace ringside::cli
