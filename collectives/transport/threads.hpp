// Ranks as threads of one process: the transport to read first, and the one to have under a
// debugger.
//
// Nothing is copied on the way: the receiver is shown the sender's own bytes, and the sender's
// `sent` is that the receiver has released them. One mutex guards the whole world; each rank sleeps
// on a condition variable of its own.
#pragma once

#include <memory>

#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

class ThreadsWorld;  // what the ranks share

std::shared_ptr<ThreadsWorld> make_threads_world(int size);

// The end of `rank` in that world; each rank takes one, and destroys it when it leaves.
std::unique_ptr<Transport> make_threads_transport(std::shared_ptr<ThreadsWorld> world, int rank);

}  // namespace ringside::collectives
