#include "training/interrupt.hpp"

#include <csignal>
#include <initializer_list>

namespace ringside::training {
namespace {

volatile std::sig_atomic_t noted = 0;

// Async-signal-safe calls only.
void note(int signal) {
  if (noted != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // takes effect when this handler returns
  }
  noted = signal;
}

}  // namespace

void catch_interrupts() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
}

int interrupted_by() {
  return noted;
}

}  // namespace ringside::training
