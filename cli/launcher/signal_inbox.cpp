#include "cli/launcher/signal_inbox.hpp"

namespace ringside::cli {
namespace {

volatile std::sig_atomic_t inbox_fd = -1;

void put_into_inbox(int signal) {
  const int saved_errno = errno;
  const auto byte = static_cast<unsigned char>(signal);
  // Where the pipe is full, the launcher has thousands of signals to read already: this one is not
  // missed.
  [[maybe_unused]] const ssize_t ignored = ::write(inbox_fd, &byte, 1);
  errno = saved_errno;
}

}  // namespace

SignalInbox::SignalInbox() : pipe_(make_pipe()) {
  make_non_blocking(pipe_.read_end);
  make_non_blocking(pipe_.write_end);
  inbox_fd = pipe_.write_end.get();
  sigset_t unblocked;
  sigemptyset(&unblocked);
  for (const int signal : handled) sigaddset(&unblocked, signal);
  pthread_sigmask(SIG_UNBLOCK, &unblocked,
                  nullptr);  // whoever started us may have had a reason to block them; we have none
  for (std::size_t i = 0; i < handled.size(); ++i) {
    ::sigaction(handled[i], nullptr, &before_[i]);
    const bool always = handled[i] == SIGCHLD || handled[i] == SIGPIPE;
    if (before_[i].sa_handler == SIG_IGN && !always) continue;
    struct sigaction action {};
    sigfillset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    action.sa_handler = handled[i] == SIGPIPE ? SIG_IGN : put_into_inbox;
    ::sigaction(handled[i], &action, nullptr);
  }
}

SignalInbox::~SignalInbox() {
  restore();
  inbox_fd = -1;
}

std::vector<int> SignalInbox::take() const {
  std::vector<int> signals;
  unsigned char byte = 0;
  while (::read(fd(), &byte, 1) == 1) signals.push_back(byte);
  return signals;
}

void SignalInbox::restore() const {
  for (std::size_t i = 0; i < handled.size(); ++i) ::sigaction(handled[i], &before_[i], nullptr);
}

}  // namespace ringside::cli
