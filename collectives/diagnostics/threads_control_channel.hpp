// The control channel of ranks that are threads of one process: an inbox for each rank.
#pragma once

#include <memory>

#include "collectives/diagnostics/control_channel.hpp"

namespace ringside::collectives {

class ControlInboxes;  // what the ranks share

std::shared_ptr<ControlInboxes> make_control_inboxes(int size);

// Every rank makes one.
std::unique_ptr<ControlChannel> make_threads_control_channel(
    std::shared_ptr<ControlInboxes> inboxes, int rank);

}  // namespace ringside::collectives
