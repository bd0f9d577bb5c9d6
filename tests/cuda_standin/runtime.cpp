// The functions of the CUDA runtime, without those of kernels (launch.cpp).
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "tests/cuda_standin/event.hpp"
#include "tests/cuda_standin/machine.hpp"
#include "tests/cuda_standin/memory.hpp"
#include "tests/cuda_standin/stream.hpp"

using namespace ringside::standin;

namespace {

struct Name {
  cudaError_t error;
  const char *name, *text;
};
constexpr Name names[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge",
     "too many blocks in cooperative launch"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized", "invalid device context"},
    {cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};
const Name& name_of(cudaError_t error) {
  for (const Name& name : names)
    if (name.error == error) return name;
  return names[std::size(names) - 1];
}

// cuMemGetAddressRange of the driver.
int address_range(std::uint64_t* base, std::size_t* bytes, std::uint64_t pointer) {
  void* at = nullptr;
  if (!range_of(reinterpret_cast<const void*>(pointer), at, *bytes)) return 1;
  *base = reinterpret_cast<std::uint64_t>(at);
  return 0;
}

// cuDeviceGetUuid of the driver: before 11.4 that of the whole GPU.
template <bool of_instance>
int device_uuid(unsigned char* uuid, int device) {
  const int whole = machine().mig ? 0 : device;
  std::memset(uuid, 0xa0 + (of_instance ? device : whole), 16);
  return 0;
}

bool is_valid_device(int device) {
  return device >= 0 && device < machine().devices;
}

// Copies `bytes`. A word is copied by an atomic access of the sanitizer's, because a kernel may
// poll it meanwhile.
void move_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes == 4 && __tsan_atomic32_load)
    __tsan_atomic32_store(
        static_cast<std::uint32_t*>(to),
        __tsan_atomic32_load(static_cast<const std::uint32_t*>(from), __ATOMIC_RELAXED),
        __ATOMIC_RELAXED);
  else
    std::memmove(to, from, bytes);
}

// Whether the kind of a copy agrees with its addresses, and both ranges are whole.
bool are_in_place(const Place& to, const Place& from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice,
             from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return (to.type == cudaMemoryTypeDevice) == to_device &&
         (from.type == cudaMemoryTypeDevice) == from_device &&
         (!to_device || to.bytes_left >= bytes) && (!from_device || from.bytes_left >= bytes);
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t handle, bool wait) {
  const auto stream = Stream::of(handle);
  if (!stream) return report(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  const Place target = place_of(to), source = place_of(from);
  if (!are_in_place(target, source, bytes, kind)) return report(cudaErrorInvalidValue);
  const bool pageable =
      target.type == cudaMemoryTypeUnregistered || source.type == cudaMemoryTypeUnregistered;
  if (stream->capture() && (wait || pageable)) return report(cudaErrorStreamCaptureUnsupported);
  if (kind == cudaMemcpyHostToDevice && source.type == cudaMemoryTypeUnregistered) {
    // Pageable: the driver reads it now, and its own copy lands later.
    auto staged = std::make_shared<std::vector<std::byte>>(bytes);
    std::memcpy(staged->data(), from, bytes);
    // The stream frees it: ThreadSanitizer sees no order between its read and a free elsewhere.
    stream->add(
        [to, staged = std::move(staged), bytes] {
          const Access access;
          move_bytes(to, staged->data(), bytes);
        },
        true);
    return cudaSuccess;
  }
  stream->add([to, from, bytes, source] {
    if (source.of_a_peer) note_read(source.device);
    const Access access;
    move_bytes(to, from, bytes);
  });
  // A copy to pageable memory returns when it is done, even if it is called asynchronous.
  const bool to_pageable = target.type == cudaMemoryTypeUnregistered;
  if ((wait && kind != cudaMemcpyDeviceToDevice) || to_pageable) stream->wait();
  return cudaSuccess;
}

}  // namespace

extern "C" {

// ---- Errors and versions

const char* cudaGetErrorName(cudaError_t error) {
  return name_of(error).name;
}
const char* cudaGetErrorString(cudaError_t error) {
  return name_of(error).text;
}
cudaError_t cudaGetLastError() {
  return std::exchange(last_error(), cudaSuccess);
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return enter(false);
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return enter(false);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  if (const auto error = enter()) return error;
  *function = nullptr;
  if (std::strcmp(symbol, "cuMemGetAddressRange") == 0)
    *function = reinterpret_cast<void*>(&address_range);
  if (std::strcmp(symbol, "cuDeviceGetUuid") == 0)
    *function = version >= 11040 ? reinterpret_cast<void*>(&device_uuid<true>)
                                 : reinterpret_cast<void*>(&device_uuid<false>);
  *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

// ---- Devices

cudaError_t cudaGetDeviceCount(int* count) {
  *count = machine().devices;
  return enter(false);
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return enter(false);
}
cudaError_t cudaSetDevice(int device) {
  if (!is_valid_device(device)) return report(cudaErrorInvalidDevice);
  current_device() = device;
  return enter();  // since CUDA 12 it makes the context
}
cudaError_t cudaDeviceSynchronize() {
  if (const auto error = enter()) return error;
  Stream::wait_for_device(current_device());
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const auto error = enter(false)) return error;
  if (!is_valid_device(device)) return report(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = multiprocessors;
      return cudaSuccess;
    case cudaDevAttrIpcEventSupport:
      *value = machine().ipc;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = shared_most;
      return cudaSuccess;
    default:
      return report(cudaErrorInvalidValue);
  }
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const auto error = enter(false)) return error;
  if (!is_valid_device(device)) return report(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "stand-in for a GPU");
  properties->multiProcessorCount = multiprocessors;
  properties->totalGlobalMem = device_bytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (const auto error = enter(false)) return error;
  if (!is_valid_device(device)) return report(cudaErrorInvalidDevice);
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0",
                machine().mig ? 16 : 16 + device);
  return cudaSuccess;
}

// ---- Memory

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (const auto error = enter()) return error;
  *pointer = bytes == 0 ? nullptr : allocate(current_device(), bytes);
  return bytes == 0 || *pointer ? cudaSuccess : report(cudaErrorMemoryAllocation);
}
// What is freed stays freed if the call fails: its error may come from an earlier kernel.
cudaError_t cudaFree(void* pointer) {
  const auto error = enter();
  if (!pointer) return error;
  int device = device_of_allocation(pointer);
  if (device < 0) return report(cudaErrorInvalidValue);
  Stream::wait_for_device(device);
  deallocate(pointer, device);
  return error;
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  if (const auto error = enter()) return error;
  *pointer = allocate_pinned(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
  const auto error = enter();
  if (!pointer) return error;
  Stream::wait_for_device(current_device());
  return deallocate_pinned(pointer) ? error : report(cudaErrorInvalidValue);
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const auto error = enter()) return error;
  *total = device_bytes;
  *free = device_bytes - used_bytes(current_device());
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (const auto error = enter()) return error;
  const Place place = place_of(pointer);
  *attributes = {};
  attributes->type = place.type;
  attributes->device = place.device;
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const auto error = enter()) return error;
  return copy(to, from, bytes, kind, nullptr, true);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const auto error = enter()) return error;
  return copy(to, from, bytes, kind, stream, false);
}
cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  if (const auto error = enter()) return error;
  const Place place = place_of(pointer);
  if (place.type != cudaMemoryTypeDevice || place.bytes_left < bytes)
    return report(cudaErrorInvalidValue);
  Stream::of(nullptr)->add(
      [=] {
        const Access access;
        std::memset(pointer, value, bytes);
      },
      true);
  return cudaSuccess;
}

// ---- Streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (const auto error = enter()) return error;
  if (flags != cudaStreamNonBlocking) return report(cudaErrorInvalidValue);  // all that we use
  *stream = Stream::make(current_device())->handle();
  ++machine().streams;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const auto error = enter();
  const auto stream = handle ? Stream::of(handle) : nullptr;
  if (!stream) return report(cudaErrorInvalidResourceHandle);
  stream->destroy();
  --machine().streams;
  return error;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  if (const auto error = enter()) return error;
  const auto stream = Stream::of(handle);
  if (!stream) return report(cudaErrorInvalidResourceHandle);
  if (stream->capture()) return report(cudaErrorStreamCaptureUnsupported);
  stream->wait();
  return cudaSuccess;
}
// Counts as a call when it succeeds: how often a program polls differs from run to run.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const auto stream = Stream::of(handle);
  if (!stream) return report(cudaErrorInvalidResourceHandle);
  if (stream->capture()) return report(cudaErrorStreamCaptureUnsupported);
  return stream->idle() ? enter() : report(cudaErrorNotReady);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t of, unsigned) {
  if (const auto error = enter()) return error;
  const auto stream = Stream::of(handle);
  const auto event = Event::of(of);
  if (!stream || !event) return report(cudaErrorInvalidResourceHandle);
  event->hold_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const auto error = enter()) return error;
  const bool interprocess = flags & cudaEventInterprocess;
  if (interprocess && !(flags & cudaEventDisableTiming)) return report(cudaErrorInvalidValue);
  *event = Event::make(flags)->handle();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const auto error = enter();
  const auto event = Event::of(handle);
  if (!event) return report(cudaErrorInvalidResourceHandle);
  event->destroy();
  return error;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t on) {
  if (const auto error = enter()) return error;
  const auto event = Event::of(handle);
  const auto stream = Stream::of(on);
  if (!event || !stream || event->is_opened()) return report(cudaErrorInvalidResourceHandle);
  event->record(*stream);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  if (const auto error = enter()) return error;
  const auto event = Event::of(handle);
  if (!event) return report(cudaErrorInvalidResourceHandle);
  if (event->captured()) return report(cudaErrorStreamCaptureUnsupported);
  event->wait();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (const auto error = enter()) return error;
  const auto earlier = Event::of(begin), later = Event::of(end);
  if (!earlier || !later) return report(cudaErrorInvalidResourceHandle);
  return report(later->milliseconds_since(*earlier, *milliseconds));
}

// ---- Other processes

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  if (const auto error = enter()) return error;
  if (!machine().ipc) return report(cudaErrorNotSupported);
  return share(pointer, *handle) ? cudaSuccess : report(cudaErrorInvalidValue);
}
cudaError_t cudaIpcOpenMemHandle(void** base, cudaIpcMemHandle_t handle, unsigned flags) {
  if (const auto error = enter()) return error;
  if (flags != cudaIpcMemLazyEnablePeerAccess) return report(cudaErrorInvalidValue);
  return report(open(handle, *base));
}
cudaError_t cudaIpcCloseMemHandle(void* base) {
  const auto error = enter();
  Stream::wait_for_device(current_device());
  return close(base) ? error : report(cudaErrorInvalidValue);
}
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t of) {
  if (const auto error = enter()) return error;
  const auto event = Event::of(of);
  if (!machine().ipc) return report(cudaErrorNotSupported);
  return event && event->share(*handle) ? cudaSuccess : report(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  if (const auto error = enter()) return error;
  const auto opened = Event::open(handle);
  if (!opened) return report(cudaErrorInvalidResourceHandle);
  *event = opened->handle();
  return cudaSuccess;
}

}  // extern "C"
