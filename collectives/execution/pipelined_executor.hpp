// Runs any schedule over any transport.
//
// A chunk travels as a row of SLICES, and a slice is one message. Slices of one chunk flow through
// the ring like wagons of a train: while slice 1 is on its way, slice 0 is added to what is held
// here, and sent on. Long chunks are cut into SEGMENTS of a few slices, and the whole schedule runs
// once for each segment, so that what was just added is still in cache when it is sent, and scratch
// memory is a segment for each chunk that only passes through, however long the buffer is:
//
//     chunk 2:  | slice 0  slice 1  slice 2  slice 3 | slice 4  slice 5  slice 6  slice 7 | slice 8
//               '---------- segment 0 ---------------'----------- segment 1 --------------'---- ...
//
// Sends go out in the order (segment, step, slice), receives are taken in the same order, and
// nothing else is ordered: each side runs ahead as far as the data allows. Two rules keep it right;
// plan() finds for each step which earlier step they speak of:
//   - a slice may be sent once the last receive of an earlier step into that chunk is done;
//   - a slice may be received into a chunk once the last send, of this step or an earlier one, out of that chunk is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/algorithms/schedule.hpp"
#include "collectives/call.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

void warn_on_stderr(const std::string& sentence);

struct ExecutorOptions {
  std::size_t slice_bytes =
      0;  // a message's payload at most; the same on all ranks; 0: what suits the transport
  int slices_per_segment = 4;
  std::string group = {};  // the name of a sub-group; empty: all ranks of the job
  Seconds timeout{120};    // how long a rank may wait without any progress
  Seconds warn_after{10};  // after how long it says so; 0: never
  std::function<void(const std::string& sentence)> warn = warn_on_stderr;
};

// A rank's schedule with the order that its data imposes on it, and where its data lies at each
// step: in the input until something has been received into a chunk, from then on in the output.
// Made once for each kind of call and kept.
struct Plan {
  static constexpr int none = -1;
  struct Need {
    int step = none;          // the earlier step that must be done first
    bool same_chunks = true;  // it moved the same chunks: then slice by slice, else the whole of it
  };
  Schedule schedule;
  std::vector<Need> send_needs;     // [step] the receive that a send waits for
  std::vector<Need> receive_needs;  // [step] the send that a receive waits for
  std::vector<int> reused_after;  // [step] the last send of the chunk received: in the next segment
                                  // its scratch is free after it
  std::vector<bool>
      from_input;  // [step] what is sent still lies in the input, or is asked for from there
  std::vector<bool> first_touch;  // [step] nothing was received into these chunks before: what is
                                  // added to is still the input
  std::vector<bool> received;     // [chunk] some step receives into it
  bool starts_in_output = false;  // some message mixes chunks received and not: so the input is
                                  // copied to the output before all else
  bool keeps_input = false;  // in place, and input is sent after something was received there: so a
                             // copy is sent instead
};

// `in_place`: input and output are the same memory.
Plan plan(Schedule schedule, bool in_place);

// Where the data is. Chunks in `kept` live in `output`; others that pass through this rank, in the
// executor's scratch.
struct Buffers {
  const std::byte* input = nullptr;  // this rank's contribution: the chunks of `given`, one after
                                     // the other. Never written by itself.
  ChunkRange given;
  std::byte* output = nullptr;  // the chunks of `kept`, one after the other. May be the input's
                                // memory, then with the same chunks.
  ChunkRange kept;
};

class Executor {
 public:
  Executor(Transport& transport, ExecutorOptions options)
      : transport_(transport),
        options_(options),
        recorder_(transport.rank(), transport.size(), flight_folder_from_environment(),
                  options.group) {
    if (options_.slice_bytes == 0) options_.slice_bytes = transport.slice_bytes();
  }

  // Runs this rank's part of call number `sequence`. Returns when the result is in buffers.output
  // and all of buffers.input may be changed again. Throws Error when the ranks disagree,
  // RankFailure when a rank is gone or nothing moves for options.timeout; every other rank is told
  // the cause first.
  void run(const Plan& plan, const Call& call, std::uint64_t sequence, const Chunks& chunks,
           const Buffers& buffers);

  const ExecutorOptions& options() const { return options_; }

 private:
  Transport& transport_;
  ExecutorOptions options_;
  FlightRecorder recorder_;
  std::vector<std::byte> scratch_, kept_input_;  // kept between calls
};

}  // namespace ringside::collectives
