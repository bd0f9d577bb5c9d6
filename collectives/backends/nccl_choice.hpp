// Which algorithm and protocol NCCL takes for a call, and on how many channels.
//
//     NcclChoice choice;                   from here on NCCL tells its choices
//     backend.run(call, input, output);
//     choice.of_last_call()                "RING LL128 x16"; "": NCCL has not said it
//
// No function of NCCL tells this; it tells a profiler. This program is one (nccl_choice.cpp), which
// listens as long as an NcclChoice exists, so calls that are timed pay nothing.
#pragma once

#include <string>

namespace ringside::collectives {

class NcclChoice {
 public:
  NcclChoice();
  ~NcclChoice();
  NcclChoice(const NcclChoice&) = delete;
  NcclChoice& operator=(const NcclChoice&) = delete;

  // In NCCL's words, those of NCCL_ALGO and NCCL_PROTO, and the number of channels. Of several
  // ranks in one process, any rank's: all choose alike. NCCL says nothing of kernels for symmetric
  // windows, and before 2.27 nothing at all.
  std::string of_last_call() const;

  // Lets NCCL find this program's profiler, unless the user has chosen another one. Before the
  // process makes its first communicator.
  static void offer();
};

}  // namespace ringside::collectives
