// The data flow of a schedule: in which order its data allows the steps to run, and where the data
// lies at each step. It follows from the schedule alone; made once for each, and kept.
#pragma once

#include <vector>

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

constexpr bool overlap(ChunkRange a, ChunkRange b) {
  return a.first < b.first + b.count && b.first < a.first + a.count;
}

struct DataFlow {
  static constexpr int none = -1;
  // An earlier step that must be done first.
  struct Need {
    int step = none;
    bool same_chunks = true;  // it moved the same chunks: slice k waits only for its slice k
  };

  // The order. Two rules keep a pipelined run right:
  //   - a slice may be sent once the last receive of an earlier step into that chunk is done;
  //   - a slice may be received into a chunk once the last send out of that chunk, of this step or
  //     an earlier one, is done.
  std::vector<Need> send_needs;     // [step] the receive that the send waits for
  std::vector<Need> receive_needs;  // [step] the send that the receive waits for
  std::vector<int> reused_after;    // [step] the last send of the received chunk: afterwards the
                                    // next segment may reuse the chunk's scratch

  // Where the data lies: in the input until something is received into a chunk, from then on in
  // the output.
  std::vector<bool> from_input;   // [step] the data to send lies in the input
  std::vector<bool> first_touch;  // [step] the first receive into these chunks: an add reads the
                                  // input
  std::vector<bool> received;     // [chunk] some step receives into it
  bool single_chunks = true;      // no message moves more than one chunk
  bool starts_in_output = false;  // a message mixes chunks received and not received: the input is
                                  // copied to the output before the first step
  bool keeps_input = false;       // in place, and input is sent after a receive into it: the
                                  // executor sends from a copy
};

// `in_place`: input and output are the same memory.
DataFlow data_flow(const Schedule& schedule, bool in_place);

}  // namespace ringside::collectives
