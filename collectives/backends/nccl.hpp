// NCCL behind the Backend seam: between GPUs a program may choose it in the place of our own calls.
// In a build without it, making its backend throws Error that says what to install; programs can
// ask before.
#pragma once

#include <memory>
#include <string>

#include "base/clock.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/cuda/device_backend.hpp"

namespace ringside::collectives {

class ProcessGroup;

// NCCL for memory of GPUs, with one GPU for each rank, chosen by the local rank; several hosts are
// connected by NCCL's own network. All types; sum, product, min, max, avg. all_reduce, broadcast,
// reduce, barrier; reduce_scatter and all_gather of counts that the number of ranks divides. NCCL
// does not compare the calls of the ranks. A call or a connection that does not finish within
// `timeout` fails, and so does one for which NCCL reports an error; the communicator is then
// aborted.
//
// The ranks exchange what NCCL needs over `meeting`, a collective call; or find each other with our
// rendezvous. Throws Error if the library is missing or older than the header of the build.
bool nccl_is_here();         // whether this build can use NCCL
std::string nccl_version();  // of the library that is opened: "2.28.9"; "" in a build without NCCL
// Where the buffers of allocate() lie. Those of cudaMalloc are what most programs pass. NCCL's own
// memory can be registered with the communicator (ncclCommRegister, 2.19), which lets NCCL send it
// without a copy; or, by all ranks at once, as a symmetric window (ncclCommWindowRegister, 2.27),
// for which NCCL has kernels of its own.
enum class NcclMemory { plain, registered, symmetric };
struct NcclOptions {
  Seconds timeout{120};
  NcclMemory memory = NcclMemory::plain;
  // A blocking communicator, as most programs have it: faster, but if a rank is lost while they
  // connect, the others wait for ever.
  bool blocking = false;
  // DeviceBackend::choice_of() tells algorithm, protocol and channels. To be set with the first
  // communicator of a process.
  bool tells_choice = false;
};
std::unique_ptr<cuda::DeviceBackend> make_nccl_backend(ProcessGroup& meeting, int local_rank,
                                                       const NcclOptions& options = {});
std::unique_ptr<cuda::DeviceBackend> make_nccl_backend(const RankInfo& rank_info,
                                                       const NcclOptions& options = {});

}  // namespace ringside::collectives
