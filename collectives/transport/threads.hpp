// Ranks as threads of one process: the transport to read first, and the one to run in a debugger.
//
// A message is not copied on its way. The receiver reads the sender's own bytes, and the send
// completes when the receiver has released them. One mutex guards the queues of all ranks; each
// rank sleeps on its own condition variable.
#pragma once

#include <memory>

#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

class MessageQueues;  // what the ranks share: one queue for each ordered pair of ranks

std::shared_ptr<MessageQueues> make_message_queues(int size);

// Every rank makes one. Its destruction tells peers that the rank has left.
std::unique_ptr<Transport> make_threads_transport(std::shared_ptr<MessageQueues> queues, int rank);

}  // namespace ringside::collectives
