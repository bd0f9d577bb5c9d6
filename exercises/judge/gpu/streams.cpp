#include "exercises/judge/gpu/streams.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"
#include "exercises/judge/gpu/point.hpp"

namespace ringside::gpu {

double Durations::of(int kind, int chunk) const {
  return 2 + 2 * random_uniform(seed, 38 + static_cast<std::uint64_t>(kind),
                                static_cast<std::uint64_t>(chunk));
}

namespace {
const char* const kinds[] = {"copy_in", "run_kernel", "copy_out"};
}

struct EmulatedDevice::State {
  struct Operation {
    int kind, slot, chunk;
  };
  struct Slot {
    int chunk = -1, last = -1;  // the last operation
    int kind = 2;               // of that one
  };

  int chunks;
  Durations durations;
  bool pinned = false;
  std::vector<Operation> operations;
  std::vector<Point> streams, events;
  std::vector<Slot> slots;
  std::vector<int> left;  // how often each chunk has come back
  Point host;
  double busy_until[3] = {};
  StreamsSeen seen;

  static std::string text(int kind, int slot, int chunk) {
    return fmt::format("{} of chunk {} in slot {}", kinds[kind], chunk, slot);
  }
  Point& at(std::vector<Point>& all, int n, const char* what) const {
    require(n >= 0 && n < static_cast<int>(all.size()), "there is no {} {}; there are {}", what, n,
            all.size());
    return all[static_cast<std::size_t>(n)];
  }
  void note(const std::string& fault) {
    if (seen.fault.empty()) seen.fault = fault;
  }

  void add(int kind, int stream, int slot, int chunk) {
    require(slot >= 0 && slot < static_cast<int>(slots.size()), "there is no slot {}; there are {}",
            slot, slots.size());
    require(chunk >= 0 && chunk < chunks, "there is no chunk {}; there are {}", chunk, chunks);
    Slot& memory = slots[static_cast<std::size_t>(slot)];
    const std::string is = text(kind, slot, chunk);
    if (memory.kind != (kind + 2) % 3 || (kind > 0 && memory.chunk != chunk))
      note(fmt::format(
          "{} follows {}", is,
          memory.last < 0 ? "nothing: the slot is empty" : text(memory.kind, slot, memory.chunk)));
    Point& queue = at(streams, stream, "stream");
    queue.join(host);
    if (memory.last >= 0 && !queue.after.has(static_cast<std::size_t>(memory.last)))
      note(
          fmt::format("{} may begin before {} has ended: neither a stream, nor an event, nor the "
                      "host puts it after it",
                      is, text(memory.kind, slot, memory.chunk)));
    const double begin = std::max(queue.time, busy_until[kind]);
    const double end = begin + durations.of(kind, chunk);
    busy_until[kind] = end;
    const auto number = operations.size();
    operations.push_back({kind, slot, chunk});
    queue.after.add(number);
    queue.time = end;
    seen.makespan = std::max(seen.makespan, end);
    memory = {chunk, static_cast<int>(number), kind};
    if (kind == 2) ++left[static_cast<std::size_t>(chunk)];
    if (kind != 1 && !pinned) host_waits_for(queue);
  }
  void host_waits_for(const Point& point) {
    ++seen.host_waits;
    host.join(point);
  }
};

EmulatedDevice::EmulatedDevice(int chunks, int slots, Durations durations)
    : state_(std::make_unique<State>()) {
  state_->chunks = chunks;
  state_->durations = durations;
  state_->slots.resize(static_cast<std::size_t>(slots));
  state_->left.resize(static_cast<std::size_t>(chunks));
}
EmulatedDevice::~EmulatedDevice() = default;

void EmulatedDevice::pin_host_memory() {
  state_->pinned = true;
}
int EmulatedDevice::new_stream() {
  state_->streams.emplace_back();
  return static_cast<int>(state_->streams.size()) - 1;
}
int EmulatedDevice::new_event() {
  state_->events.emplace_back();
  return static_cast<int>(state_->events.size()) - 1;
}
void EmulatedDevice::copy_in(int stream, int slot, int chunk) {
  state_->add(0, stream, slot, chunk);
}
void EmulatedDevice::run_kernel(int stream, int slot) {
  require(slot >= 0 && slot < static_cast<int>(state_->slots.size()),
          "there is no slot {}; there are {}", slot, state_->slots.size());
  const int chunk = state_->slots[static_cast<std::size_t>(slot)].chunk;
  state_->add(1, stream, slot, std::max(chunk, 0));
}
void EmulatedDevice::copy_out(int stream, int slot, int chunk) {
  state_->add(2, stream, slot, chunk);
}
void EmulatedDevice::record(int event, int stream) {
  Point& point = state_->at(state_->events, event, "event");
  point = state_->at(state_->streams, stream, "stream");
}
void EmulatedDevice::wait(int stream, int event) {
  state_->at(state_->streams, stream, "stream").join(state_->at(state_->events, event, "event"));
}
void EmulatedDevice::synchronize(int stream) {
  state_->host_waits_for(state_->at(state_->streams, stream, "stream"));
}

StreamsSeen EmulatedDevice::seen() const {
  StreamsSeen seen = state_->seen;
  if (!seen.fault.empty()) return seen;
  for (int chunk = 0; chunk < state_->chunks; ++chunk)
    if (const int times = state_->left[static_cast<std::size_t>(chunk)]; times != 1)
      seen.fault = fmt::format("chunk {} comes back {} times, expected once", chunk, times);
  for (std::size_t n = 0; n < state_->operations.size() && seen.fault.empty(); ++n)
    if (!state_->host.after.has(n))
      seen.fault =
          fmt::format("the program returns while {} may still run: the host has not waited for it",
                      State::text(state_->operations[n].kind, state_->operations[n].slot,
                                  state_->operations[n].chunk));
  return seen;
}

}  // namespace ringside::gpu
