// Capture of streams into graphs: the work of a capture is kept in the order of its calls, which is
// one of the orders that a graph allows, and a launch puts it into a stream.
#include <cuda_runtime_api.h>

#include "tests/cuda_standin/machine.hpp"
#include "tests/cuda_standin/stream.hpp"

using namespace ringside::standin;

// Both kinds of handle are the same object: nothing of ours updates a graph.
struct CUgraph_st {
  std::shared_ptr<Capture> capture;
};
struct CUgraphExec_st {
  std::shared_ptr<Capture> capture;
};

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  if (const auto error = enter()) return error;
  const auto stream = handle ? Stream::of(handle) : nullptr;
  if (!stream) return report(cudaErrorStreamCaptureUnsupported);
  if (stream->capture()) return report(cudaErrorIllegalState);
  const auto capture = std::make_shared<Capture>();
  capture->origin = stream.get();
  stream->join(capture);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  if (const auto error = enter()) return error;
  const auto stream = Stream::of(handle);
  const auto capture = stream ? stream->capture() : nullptr;
  if (!capture || capture->origin != stream.get()) return report(cudaErrorIllegalState);
  capture->ended = true;
  if (!capture->unjoined.empty()) return report(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{capture};
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  if (const auto error = enter()) return error;
  const auto stream = Stream::of(handle);
  if (!stream) return report(cudaErrorInvalidResourceHandle);
  *status = stream->capture() ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  if (const auto error = enter()) return error;
  *exec = new CUgraphExec_st{graph->capture};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  if (const auto error = enter()) return error;
  const auto stream = Stream::of(handle);
  if (!stream) return report(cudaErrorInvalidResourceHandle);
  stream->add([capture = exec->capture] {
    for (const auto& work : capture->work) work();
  });
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return enter();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return enter();
}

}  // extern "C"
