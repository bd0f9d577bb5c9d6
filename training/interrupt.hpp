// Ctrl-C as a request: the run ends after the step that is under way, and saves.
#pragma once

namespace ringside::training {

// From now on SIGINT, SIGTERM and SIGHUP (the terminal is gone) are noted instead of ending the
// process. A second one ends it at once. A signal that the process ignores stays ignored (nohup).
// May be called several times.
void catch_interrupts();

// The first signal that was noted, or 0.
int interrupted_by();

}  // namespace ringside::training
