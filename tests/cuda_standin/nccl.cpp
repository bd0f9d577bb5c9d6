// The functions of NCCL that Ringside calls. The ranks exchange pieces through a file in memory,
// which rank 0 makes with the id:
//
//     [ head | area of rank 0 | area of rank 1 | ... ]      a piece: put own part; barrier;
//                                                          take what is needed; barrier
//
// As NCCL does with blocking = 0, a call is "in progress" for some polls, an abort ends what is
// under way, ranks that share a GPU are refused, and a lost rank is waited for without end. Memory
// of its own is registered, alone or as a window of all ranks, and misuse of either is refused
// where NCCL would go on: with RINGSIDE_STANDIN_NCCL_COUNTS a communicator says at its end what its
// calls used. A profiler in the program hears of calls that make a choice, which here is an
// invented one.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <nccl.h>

#include "collectives/half.hpp"
#include "tests/cuda_standin/machine.hpp"
#include "tests/cuda_standin/memory.hpp"
#include "tests/cuda_standin/shared_file.hpp"
#include "tests/cuda_standin/stream.hpp"

using namespace ringside::standin;
using ringside::collectives::Bf16;
using ringside::collectives::Fp16;

namespace {

constexpr int most_ranks = 8;
constexpr std::size_t head_bytes = 4096, area_bytes = std::size_t{1} << 20,
                      session_bytes = head_bytes + most_ranks * area_bytes;
constexpr int polls_in_progress = 3;

// The program's profiler, as NCCL 2.27 and newer find it (profiler_v4.h): the fields of a
// collective call, and the functions that are called here.
struct CollectiveEvent {
  std::uint8_t type = 0;
  void* parent = nullptr;
  int rank = 0;
  std::uint64_t number = 0;
  const char* func = nullptr;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  int root = 0;
  const char* datatype = nullptr;
  std::uint8_t channels = 0, warps = 0;
  const char *algo = nullptr, *proto = nullptr;
};
struct Profiler {
  const char* name;
  ncclResult_t (*init)(void** context, int* mask, const char* name, std::uint64_t hash, int nodes,
                       int ranks, int rank, void* log);
  ncclResult_t (*start)(void* context, void** handle, CollectiveEvent* event);
};
constexpr int profiles_groups = 1 << 0, profiles_collectives = 1 << 1;
std::atomic<int> profiled = 0;  // the mask; the profiler writes it
static_assert(sizeof profiled == sizeof(int));

const Profiler* profiler() {
  static const Profiler* const found = []() -> const Profiler* {
    int version = 0;
    ncclGetVersion(&version);
    const char* const plugin = std::getenv("NCCL_PROFILER_PLUGIN");
    if (version < 22700 || !plugin || std::string(plugin) != "STATIC_PLUGIN") return nullptr;
    return static_cast<const Profiler*>(::dlsym(::dlopen(nullptr, RTLD_NOW), "ncclProfiler_v4"));
  }();
  return found;
}

struct Head {
  std::atomic<int> joined = 0;
  std::atomic<int> devices[most_ranks];  // device + 1 of each rank that joined
  std::atomic<std::uint64_t> arrivals = 0;
  std::atomic<std::uint64_t> windows = 0, windows_compared = 0;  // by all ranks so far
  std::atomic<std::uint64_t> lengths[most_ranks];  // of the window that each rank registers
};

// Bytes of memory from ncclMemAlloc, by their address. Page 0 of the allocation may be unused.
struct Allocation {
  void* whole = nullptr;
  std::size_t bytes = 0;
  int registered = 0;
};
std::mutex of_allocations;
std::map<const std::byte*, Allocation> allocations;

// The allocation with all of `bytes` from `data` on; nullptr: there is none.
Allocation* allocation_with(const void* data, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  auto found = allocations.upper_bound(begin);
  if (found == allocations.begin()) return nullptr;
  --found;
  return begin + bytes <= found->first + found->second.bytes ? &found->second : nullptr;
}

// Memory that a communicator knows; its address is the handle.
struct Registration {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
  bool window = false;
};

}  // namespace

struct ncclComm : std::enable_shared_from_this<ncclComm> {
  int rank = 0, size = 1;
  SharedFile file;
  std::thread joining;
  std::atomic<int> state = ncclInProgress, polls = 0;
  bool blocking = false;  // calls return when they have begun
  std::atomic<bool> aborted = false;
  std::uint64_t barriers = 0;  // used by the stream only
  std::string last_error;
  std::list<Registration> registrations;
  int calls = 0, calls_registered = 0, calls_in_windows = 0, calls_in_groups = 0, calls_told = 0;
  void* of_profiler = nullptr;
  std::shared_ptr<ncclComm> self;  // until it is destroyed; queued work holds it too

  ~ncclComm() {
    if (joining.joinable()) joining.join();
    if (file.memory) ::munmap(file.memory, session_bytes);
  }
  Head& head() const { return *static_cast<Head*>(file.memory); }
  std::byte* area(int of) const {
    return static_cast<std::byte*>(file.memory) + head_bytes +
           static_cast<std::size_t>(of) * area_bytes;
  }

  // Counts a call by what holds both of its buffers. Returns whether these are windows.
  bool count(const void* in, const void* out) {
    const auto holder = [&](const void* data) -> const Registration* {
      for (const Registration& each : registrations)
        if (data >= each.begin && data < each.begin + each.bytes) return &each;
      return nullptr;
    };
    const Registration *const of_in = holder(in), *const of_out = holder(out);
    ++calls;
    if (!of_in || !of_out) return false;
    const bool windows = of_in->window && of_out->window;
    ++(windows ? calls_in_windows : calls_registered);
    return windows;
  }

  // Tells the profiler what a call of so many bytes takes: few bytes a tree, many a ring.
  void tell(std::size_t count, std::size_t bytes) {
    ++calls_told;
    void* handle = nullptr;
    CollectiveEvent event{.type = profiles_groups};  // NCCL tells of the group around it, too
    profiler()->start(of_profiler, &handle, &event);
    event = {.type = profiles_collectives,
             .rank = rank,
             .func = "AllReduce",
             .count = count,
             .datatype = "ncclFloat32",
             .channels = 2,
             .algo = bytes < 32768 ? "TREE" : "RING",
             .proto = bytes < 32768 ? "LL" : "SIMPLE"};
    profiler()->start(of_profiler, &handle, &event);
  }
  void say_counts() const {
    if (std::getenv("RINGSIDE_STANDIN_NCCL_COUNTS"))
      std::fprintf(stderr,
                   "rank %d: %d calls, %d registered, %d in windows, %d in groups, %d told\n", rank,
                   calls, calls_registered, calls_in_windows, calls_in_groups, calls_told);
  }

  ncclResult_t refuse(std::string why) {
    last_error = std::move(why);
    return ncclInvalidUsage;
  }

  template <class Ready>
  bool wait_until(const Ready& ready) const {
    while (!ready()) {
      if (aborted) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
  }
  bool barrier() {
    const std::uint64_t wanted = ++barriers * static_cast<std::uint64_t>(size);
    ++head().arrivals;
    return wait_until([&] { return head().arrivals >= wanted; });
  }

  void join(int device) {
    head().devices[rank] = device + 1;
    ++head().joined;
    if (!wait_until([&] { return head().joined >= size; })) return;
    for (int a = 0; a < size; ++a)
      for (int b = 0; b < a; ++b)
        if (head().devices[a] == head().devices[b]) {
          last_error = "Duplicate GPU detected";
          state = ncclInvalidUsage;
          return;
        }
    state = ncclSuccess;
  }
};

namespace {

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclFloat64:
    case ncclInt64:
      return 8;
    default:
      return 4;
  }
}

template <class T, class Wide>
void reduce_as(const ncclComm& c, ncclRedOp_t op, std::size_t count, std::byte* out) {
  auto* const result = reinterpret_cast<T*>(out);
  for (std::size_t i = 0; i < count; ++i) {
    const auto of = [&](int r) {
      return static_cast<Wide>(reinterpret_cast<const T*>(c.area(r))[i]);
    };
    Wide total = of(0);
    for (int r = 1; r < c.size; ++r) {
      const Wide x = of(r);
      total = op == ncclProd  ? total * x
              : op == ncclMin ? std::min(total, x)
              : op == ncclMax ? std::max(total, x)
                              : total + x;
    }
    result[i] = static_cast<T>(op == ncclAvg ? total / static_cast<Wide>(c.size) : total);
  }
}

void reduce(const ncclComm& c, ncclDataType_t type, ncclRedOp_t op, std::size_t count,
            std::byte* out) {
  switch (type) {
    case ncclFloat16:
      return reduce_as<Fp16, float>(c, op, count, out);
    case ncclBfloat16:
      return reduce_as<Bf16, float>(c, op, count, out);
    case ncclFloat64:
      return reduce_as<double, double>(c, op, count, out);
    case ncclInt32:
      return reduce_as<std::int32_t, std::int32_t>(c, op, count, out);
    case ncclInt64:
      return reduce_as<std::int64_t, std::int64_t>(c, op, count, out);
    case ncclUint8:
      return reduce_as<std::uint8_t, std::uint8_t>(c, op, count, out);
    default:
      return reduce_as<float, float>(c, op, count, out);
  }
}

// One round over the areas: every rank reads `from` into its area, if it has something to put, and
// then take() runs.
template <class Take>
bool exchange(ncclComm& c, const void* from, std::size_t bytes, const Take& take) {
  if (from) std::memcpy(c.area(c.rank), from, bytes);
  if (!c.barrier()) return false;
  take();
  return c.barrier();
}

struct Transfer {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
};

// Reduces `count` elements, which `root` stores, or every rank if root is -1.
bool reduce_to(ncclComm& c, const Transfer& t, int root) {
  const std::size_t each = size_of(t.type), piece = area_bytes / each;
  for (std::size_t begin = 0; begin < t.count; begin += piece) {
    const std::size_t count = std::min(piece, t.count - begin);
    std::vector<std::byte> sums(count * each);
    const bool on = exchange(c, t.in + begin * each, count * each, [&] {
      if (root >= 0 && root != c.rank) return;
      reduce(c, t.type, t.op, count, sums.data());
      std::memcpy(t.out + begin * each, sums.data(), sums.size());
    });
    if (!on) return false;
  }
  return true;
}

// Copies from the areas of all ranks, or of the root: that of rank r to out + r * count.
bool copy_from(ncclComm& c, const Transfer& t, int root) {
  const std::size_t bytes = t.count * size_of(t.type);
  for (std::size_t begin = 0; begin < bytes; begin += area_bytes) {
    const std::size_t size = std::min(area_bytes, bytes - begin);
    const bool puts = root < 0 || root == c.rank;
    const bool on = exchange(c, puts ? t.in + begin : nullptr, size, [&] {
      for (int r = 0; r < c.size; ++r) {
        if (root >= 0 && (r != root || c.rank == root)) continue;
        const std::size_t at = root < 0 ? static_cast<std::size_t>(r) * bytes : 0;
        std::memcpy(t.out + at + begin, c.area(r), size);
      }
    });
    if (!on) return false;
  }
  return true;
}

// What a call returns that has begun.
ncclResult_t begun(ncclComm& c) {
  c.polls = 0;
  return c.blocking ? ncclSuccess : ncclInProgress;
}

// Calls of this thread between ncclGroupStart() and the ncclGroupEnd() that starts them.
thread_local int open_groups = 0;
thread_local std::vector<std::function<void()>> calls_of_group;

template <class Body>
ncclResult_t queue(ncclComm_t c, cudaStream_t handle, const void* in, void* out, std::size_t count,
                   ncclDataType_t type, ncclRedOp_t op, Body body) {
  if (enter() != cudaSuccess) return ncclUnhandledCudaError;
  if (c->state != ncclSuccess) return ncclInvalidUsage;
  const auto stream = Stream::of(handle);
  if (!stream) return ncclInvalidArgument;
  const Transfer transfer{static_cast<const std::byte*>(in), static_cast<std::byte*>(out), count,
                          type, op};
  // Of kernels for windows NCCL tells nothing.
  const bool windows = c->count(in, out), told = (profiled & profiles_collectives) && !windows;
  const auto start = [stream, self = c->shared_from_this(), transfer, body, told] {
    if (told) self->tell(transfer.count, transfer.count * size_of(transfer.type));
    stream->add([=] {
      const Access access;
      body(*self, transfer);
    });
  };
  if (open_groups > 0) {
    ++c->calls_in_groups;
    calls_of_group.emplace_back(start);
    return ncclSuccess;
  }
  start();
  return begun(*c);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const char* const pretended = std::getenv("RINGSIDE_STANDIN_NCCL");
  *version = pretended ? std::atoi(pretended) : NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInvalidUsage ? "invalid usage" : "unhandled error";
}
const char* ncclGetLastError(ncclComm_t c) {
  return c ? c->last_error.c_str() : "";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (enter() != cudaSuccess) return ncclUnhandledCudaError;
  const SharedFile file = SharedFile::make(session_bytes);  // ends with this process
  new (file.memory) Head;
  const FileHandle named{::getpid(), file.descriptor, session_bytes, 0};
  std::memcpy(id, &named, sizeof named);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (enter() != cudaSuccess) return ncclUnhandledCudaError;
  if (size > most_ranks) return ncclInvalidArgument;
  FileHandle named;
  std::memcpy(&named, &id, sizeof named);
  const auto c = std::make_shared<ncclComm>();
  c->file = SharedFile::open(named);
  if (!c->file.memory) return ncclSystemError;
  c->rank = rank;
  c->size = size;
  c->self = c;
  if (profiler())
    profiler()->init(&c->of_profiler, reinterpret_cast<int*>(&profiled), nullptr, 0, 1, size, rank,
                     nullptr);
  c->joining = std::thread([self = c.get(), device = current_device()] { self->join(device); });
  *communicator = c.get();
  if ((c->blocking = config->blocking != 0)) c->joining.join();
  return c->blocking ? static_cast<ncclResult_t>(c->state.load()) : ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t* state) {
  const auto now = static_cast<ncclResult_t>(c->state.load());
  *state =
      now == ncclSuccess && !c->blocking && ++c->polls < polls_in_progress ? ncclInProgress : now;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t c) {
  return begun(*c);
}
ncclResult_t ncclCommDestroy(ncclComm_t c) {
  if (!c->registrations.empty()) return c->refuse("memory is still registered");
  c->say_counts();
  const auto last = std::move(c->self);
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  ++open_groups;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (open_groups == 0) return ncclInvalidUsage;
  if (--open_groups > 0) return ncclSuccess;
  for (const auto& start : std::exchange(calls_of_group, {})) start();
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c) {
  c->aborted = true;
  const auto last = std::move(c->self);
  return ncclSuccess;
}

// In pages, as memory of a window must be.
ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  if (enter() != cudaSuccess) return ncclUnhandledCudaError;
  constexpr std::size_t page = NCCL_WIN_REQUIRED_ALIGNMENT;
  const std::size_t pages = (bytes + page - 1) / page * page;
  void* const whole = allocate(current_device(), pages + page);
  if (!whole) return ncclUnhandledCudaError;
  const auto address = (reinterpret_cast<std::uintptr_t>(whole) + page - 1) / page * page;
  *data = reinterpret_cast<void*>(address);
  const std::lock_guard lock(of_allocations);
  allocations[static_cast<const std::byte*>(*data)] = {whole, pages};
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* data) {
  const std::lock_guard lock(of_allocations);
  const auto found = allocations.find(static_cast<const std::byte*>(data));
  if (found == allocations.end() || found->second.registered > 0) return ncclInvalidUsage;
  if (cudaFree(found->second.whole) != cudaSuccess) return ncclUnhandledCudaError;
  allocations.erase(found);
  return ncclSuccess;
}

static ncclResult_t register_memory(ncclComm_t c, void* data, size_t bytes, bool window,
                                    void** handle) {
  const std::lock_guard lock(of_allocations);
  Allocation* const memory = allocation_with(data, bytes);
  if (!memory) return c->refuse("expected memory of ncclMemAlloc");
  if (window && reinterpret_cast<std::uintptr_t>(data) % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
    return c->refuse("a window begins at a page");
  ++memory->registered;
  c->registrations.push_back({static_cast<const std::byte*>(data), bytes, window});
  *handle = &c->registrations.back();
  return ncclSuccess;
}
static ncclResult_t forget_memory(ncclComm_t c, void* handle, bool window) {
  const auto found = std::find_if(c->registrations.begin(), c->registrations.end(),
                                  [&](Registration& each) { return &each == handle; });
  if (found == c->registrations.end() || found->window != window)
    return c->refuse(window ? "no such window" : "no such registration");
  const std::lock_guard lock(of_allocations);
  --allocation_with(found->begin, found->bytes)->registered;
  c->registrations.erase(found);
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t c, void* data, size_t bytes, void** handle) {
  return register_memory(c, data, bytes, false, handle);
}
ncclResult_t ncclCommDeregister(const ncclComm_t c, void* handle) {
  return forget_memory(c, handle, false);
}
// Returns when all ranks have registered; where calls do not block, NCCL returns before.
ncclResult_t ncclCommWindowRegister(ncclComm_t c, void* data, size_t bytes, ncclWindow_t* window,
                                    int flags) {
  if (flags != NCCL_WIN_COLL_SYMMETRIC) return c->refuse("expected a symmetric window");
  void* handle = nullptr;
  if (const auto result = register_memory(c, data, bytes, true, &handle); result != ncclSuccess)
    return result;
  *window = static_cast<ncclWindow_t>(handle);
  Head& head = c->head();
  head.lengths[c->rank] = bytes;
  const auto size = static_cast<std::uint64_t>(c->size), last = ++head.windows + size - 1,
             all = last - last % size;
  if (!c->wait_until([&] { return head.windows >= all; })) return ncclInternalError;
  bool equal = true;
  for (int r = 0; r < c->size; ++r) equal = equal && head.lengths[r] == bytes;
  // No rank may write a length of its next window before all have read these.
  ++head.windows_compared;
  c->wait_until([&] { return head.windows_compared >= all; });
  return equal ? begun(*c) : c->refuse("the ranks' windows have different lengths");
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t window) {
  return forget_memory(c, window, true);
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t c, cudaStream_t stream) {
  return queue(c, stream, in, out, count, type, op,
               [](ncclComm& on, const Transfer& t) { reduce_to(on, t, -1); });
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t stream) {
  return queue(c, stream, in, out, count, type, op,
               [root](ncclComm& on, const Transfer& t) { reduce_to(on, t, root); });
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t c, cudaStream_t stream) {
  return queue(c, stream, in, out, count, type, op, [](ncclComm& on, const Transfer& t) {
    for (int r = 0; r < on.size; ++r) {
      Transfer block = t;
      block.in += static_cast<std::size_t>(r) * t.count * size_of(t.type);
      if (!reduce_to(on, block, r)) return;
    }
  });
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t c, cudaStream_t stream) {
  return queue(c, stream, in, out, count, type, ncclSum,
               [](ncclComm& on, const Transfer& t) { copy_from(on, t, -1); });
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t c, cudaStream_t stream) {
  return queue(c, stream, in, out, count, type, ncclSum,
               [root](ncclComm& on, const Transfer& t) { copy_from(on, t, root); });
}

}  // extern "C"
