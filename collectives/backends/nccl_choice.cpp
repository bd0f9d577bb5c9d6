// The profiler that NCCL finds in this program: a table of functions with the name ncclProfiler_v4,
// which NCCL looks up here where NCCL_PROFILER_PLUGIN is STATIC_PLUGIN. NCCL 2.27 has this version
// of the table; newer ones still take it. Source of the layout: plugins/profiler of NCCL 2.28,
// profiler_v4.h.
#include "collectives/backends/nccl_choice.hpp"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>

#include <fmt/format.h>

namespace ringside::collectives {

// An event of NCCL's: a collective call that has been given to the GPU. NCCL tells of the group
// around it, too, by an event of another kind, whose other fields mean nothing.
struct NcclEvent {
  std::uint8_t kind;
  void* parent;
  int rank;
  std::uint64_t number;
  const char* collective;
  const void* input;
  void* output;
  std::size_t count;
  int root;
  const char* type;
  std::uint8_t channels, warps;
  const char *algorithm, *protocol;
};

// The functions return 0, ncclSuccess.
struct NcclProfiler {
  const char* name;
  int (*init)(void** context, int* kinds, const char* communicator, std::uint64_t hash, int hosts,
              int ranks, int rank, void* log);
  int (*start_event)(void* context, void** handle, const NcclEvent* event);
  int (*stop_event)(void* handle);
  int (*record_state)(void* handle, int state, void* arguments);
  int (*finalize)(void* context);
};

namespace {

constexpr int kind_of_collectives = 1 << 1;

std::mutex mutex;            // of all below
int listeners = 0;           // NcclChoices that exist
int* kinds_told = nullptr;   // the kinds of events that NCCL tells; it reads this with each call
std::string choice_of_last;  // since there are listeners

void tell_kinds() {
  if (kinds_told)
    std::atomic_ref(*kinds_told)
        .store(listeners > 0 ? kind_of_collectives : 0, std::memory_order_relaxed);
}

int init(void**, int* kinds, const char*, std::uint64_t, int, int, int, void*) {
  const std::lock_guard lock(mutex);
  kinds_told = kinds;
  tell_kinds();
  return 0;
}

int start_event(void*, void** handle, const NcclEvent* event) {
  *handle = nullptr;
  if (event->kind != kind_of_collectives) return 0;
  const std::lock_guard lock(mutex);
  choice_of_last = fmt::format("{} {} x{}", event->algorithm, event->protocol, event->channels);
  return 0;
}

}  // namespace

extern "C" {
// NCCL opens it by this name: it is exported from the program.
extern const NcclProfiler ncclProfiler_v4;
const NcclProfiler ncclProfiler_v4{.name = "ringside",
                                   .init = init,
                                   .start_event = start_event,
                                   .stop_event = [](void*) { return 0; },
                                   .record_state = [](void*, int, void*) { return 0; },
                                   .finalize = [](void*) { return 0; }};
}

NcclChoice::NcclChoice() {
  const std::lock_guard lock(mutex);
  if (++listeners == 1) choice_of_last.clear();
  tell_kinds();
}

NcclChoice::~NcclChoice() {
  const std::lock_guard lock(mutex);
  --listeners;
  tell_kinds();
}

std::string NcclChoice::of_last_call() const {
  const std::lock_guard lock(mutex);
  return choice_of_last;
}

void NcclChoice::offer() {
  ::setenv("NCCL_PROFILER_PLUGIN", "STATIC_PLUGIN", 0);
}

}  // namespace ringside::collectives
