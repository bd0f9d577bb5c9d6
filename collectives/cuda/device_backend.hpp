// A backend for device memory, whose calls queue up on the device. Includes no CUDA header.
//
//     backend.enqueue(call, input, output);     returns when the call is on the backend's stream
//     backend.enqueue(...);                     begins on the device when the first call is done
//     backend.finish();                         blocks until all of them are done
//
// Work of the caller is ordered by events: record one on the caller's stream and make stream() wait
// for it; and the other way round after the calls. So no host waits between computing and
// communicating, and kernels can be captured into a CUDA graph: begin the capture on stream() on
// one rank's thread, enqueue, and end it. All ranks must capture, and later launch, the same calls.
#pragma once

#include <functional>
#include <string>

#include "base/error.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/execution/backend.hpp"
#include "collectives/group_options.hpp"

namespace ringside::collectives::cuda {

class DeviceBackend : public Backend {
 public:
  // Throws Error if RINGSIDE_ORDER asks for an order of additions. one_sided/ could follow the tree
  // in fp32; but it rounds 16-bit sums once, and not at each addition as messages do, so those bits
  // would differ all the same.
  DeviceBackend() {
    require(!order_is_fixed(),
            "RINGSIDE_ORDER=fixed is for CPUs: GPUs add from rank 0 to the last, or as NCCL does. "
            "Unset it, or compute with --device cpu");
  }

  // Puts this rank's part of `call` behind its earlier calls on stream() and returns. The hosts may
  // wait for each other here, but not for the device. Throws as run() does.
  virtual void enqueue(const Call& call, const void* input, void* output) = 0;

  // Blocks until all calls so far are done. Throws Error or RankFailure if one has failed; their
  // results are then undefined.
  virtual void finish() = 0;

  // Memory for the buffers of calls, which a backend may prepare so that its calls are faster. A
  // collective call, with the same length on every rank; the buffer must go before the backend.
  virtual DeviceBuffer allocate(std::size_t bytes) { return DeviceBuffer(bytes); }

  // Runs `enqueue_all`, whose calls become a group where the library has groups (ncclGroupStart).
  virtual void enqueue_group(const std::function<void()>& enqueue_all) { enqueue_all(); }

  // Runs `body`, which makes calls and waits for them; returns what a library says it has chosen
  // for the last one: "RING LL128 x16". Empty where it says nothing.
  virtual std::string choice_of(const std::function<void()>& body) {
    body();
    return {};
  }

  // The cudaStream_t of the calls. Ranks that share it have one order of work.
  virtual void* stream() = 0;

  void run(const Call& call, const void* input, void* output,
           const BlockBegins& /*begins*/ = {}) final {
    require_equal_blocks(call);
    enqueue(call, input, output);
    finish();
  }

  Traffic traffic() const final { return traffic_; }

 protected:
  Traffic traffic_;  // stays zero where a library does not report it
};

// Seconds of one call, by the device's clock, where `calls` of them queue up after a first one.
double seconds_of_queued_call(DeviceBackend& backend, const Call& call, const void* input,
                              void* output, int calls, Queueing queueing = Queueing::alone);

}  // namespace ringside::collectives::cuda
