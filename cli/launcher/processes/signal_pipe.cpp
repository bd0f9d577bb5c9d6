#include "cli/launcher/processes/signal_pipe.hpp"

namespace ringside::cli {
namespace {

volatile std::sig_atomic_t write_end = -1;

void write_to_pipe(int signal) {
  const int saved_errno = errno;
  const auto byte = static_cast<unsigned char>(signal);
  // If the pipe is full, thousands of signals already wake the launcher: it may lose this one.
  [[maybe_unused]] const ssize_t ignored = ::write(write_end, &byte, 1);
  errno = saved_errno;
}

}  // namespace

SignalPipe::SignalPipe() : pipe_(make_pipe()) {
  make_non_blocking(pipe_.read_end);
  make_non_blocking(pipe_.write_end);
  write_end = pipe_.write_end.get();
  sigset_t unblocked;
  sigemptyset(&unblocked);
  for (const int signal : handled) sigaddset(&unblocked, signal);
  // The parent process may have blocked them; the launcher needs them.
  pthread_sigmask(SIG_UNBLOCK, &unblocked, nullptr);
  for (std::size_t i = 0; i < handled.size(); ++i) {
    ::sigaction(handled[i], nullptr, &before_[i]);
    const bool always = handled[i] == SIGCHLD || handled[i] == SIGPIPE;
    if (before_[i].sa_handler == SIG_IGN && !always) continue;
    struct sigaction action {};
    sigfillset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    action.sa_handler = handled[i] == SIGPIPE ? SIG_IGN : write_to_pipe;
    ::sigaction(handled[i], &action, nullptr);
  }
}

SignalPipe::~SignalPipe() {
  restore();
  write_end = -1;
}

std::vector<int> SignalPipe::take() const {
  std::vector<int> signals;
  unsigned char byte = 0;
  while (::read(fd(), &byte, 1) == 1) signals.push_back(byte);
  return signals;
}

void SignalPipe::restore() const {
  for (std::size_t i = 0; i < handled.size(); ++i) ::sigaction(handled[i], &before_[i], nullptr);
}

}  // namespace ringside::cli
