#include "exercises/judge/gpu/emulation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/error.hpp"
#include "exercises/judge/gpu/fiber.hpp"

namespace ringside::gpu {

// The bytes that one lane asks for.
struct Lane {
  std::uint64_t address;
  int bytes;
};

// One request of a warp: what its lanes do at the same place of the kernel for the n-th time.
struct Place {
  const char* name;
  std::uint32_t line, column;
  bool writes;
  auto operator<=>(const Place&) const = default;
};

// The threads that have written a number, and read it: enough of them to find one that comes into
// another's way.
struct User {
  std::int64_t block = -1;
  int thread = 0, syncs = 0;
  std::uint32_t line = 0;
  bool atomic = false;

  // Whether no sync() is between the two.
  bool meets(const User& other) const {
    if (block < 0 || (atomic && other.atomic)) return false;
    return block != other.block || (thread != other.thread && syncs == other.syncs);
  }
  std::string text() const { return fmt::format("thread {} of block {}", thread, block); }
};
struct History {
  User writer, first_reader, reader, other_reader;
};

// An asynchronous copy of 16 bytes to shared memory; `from` is null if it brings zeros. It arrives
// when its thread waits for it, as late as it may.
struct Copy {
  int into;
  const float* from;
  std::uint32_t line;
  int batch;
};

// A thread of the emulated GPU: a stack of its own on which it goes on where it stopped.
struct Fiber : exercises::Fiber {
  using exercises::Fiber::Fiber;
  enum class At { running, sync, shuffle, end };

  At at = At::running;
  std::uint32_t line = 0;  // where it waits
  int syncs = 0;
  bool sums = false;       // the sync() is that of sum()
  std::uint32_t mask = 0;  // of the shuffle in which it waits
  float value = 0, result = 0;
  int source = 0;  // the lane whose value it wants
  std::map<Place, int> times;
  std::vector<Copy> copies;  // that it has started and not waited for
  int batch = 0;             // of the next copy
};

struct EmulatedState {
  explicit EmulatedState(const Launch& launch) : how(launch) {}

  const Launch& how;
  const std::function<void(EmulatedThread&)>* kernel = nullptr;
  std::int64_t block = 0;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<float> shared;
  std::vector<std::uint32_t> copying;  // for each float: the line of a copy that is under way, or 0
  std::int64_t shared_loads = 0, loads_under_copies = 0;
  int running = 0;
  std::exception_ptr error;
  std::map<std::tuple<Place, int, int>, std::vector<Lane>> requests;  // of (warp, n-th time)
  std::unordered_map<std::uint64_t, History> histories;
  std::map<Place, Requests> lines;

  // ---- What is counted ----

  void note(int thread, const Place& place, std::uint64_t address, int bytes) {
    Fiber& fiber = *fibers[static_cast<std::size_t>(thread)];
    requests[{place, thread / warp_size, fiber.times[place]++}].push_back({address, bytes});
  }
  // Of number i, which lies at `address`.
  void note_use(int thread, const Place& place, std::uint64_t address, std::int64_t i,
                bool atomic) {
    const User user{block, thread, fibers[static_cast<std::size_t>(thread)]->syncs, place.line,
                    atomic};
    History& history = histories[address];
    const auto refuse = [&](const User& other, const char* did) {
      if (!other.meets(user)) return;
      fail("{}[{}]: {} {} it in line {}, {} {} it in line {}, and {}", place.name, i, other.text(),
           did, other.line, user.text(), place.writes ? "writes" : "reads", user.line,
           other.block == user.block ? "no sync() is between them" : "blocks run in any order");
    };
    refuse(history.writer, "writes");
    if (place.writes) {
      for (const User& reader : {history.first_reader, history.reader, history.other_reader})
        refuse(reader, "reads");
      history.writer = user;
      return;
    }
    if (history.first_reader.block < 0) history.first_reader = user;
    if (history.reader.thread == user.thread && history.reader.block == user.block)
      history.reader = user;
    else
      history.other_reader = std::exchange(history.reader, user);
  }
  void count_requests() {
    for (const auto& [key, lanes] : requests) {
      const Place& place = std::get<0>(key);
      Requests& line = lines[place];
      line.name = place.name;
      line.line = place.line;
      line.writes = place.writes;
      ++line.requests;
      std::set<std::uint64_t> sectors, bytes;
      std::array<std::set<std::uint64_t>, 32> banks;
      for (const Lane& lane : lanes)
        for (int byte = 0; byte < lane.bytes; ++byte) {
          bytes.insert(lane.address + static_cast<std::uint64_t>(byte));
          sectors.insert((lane.address + static_cast<std::uint64_t>(byte)) / 32);
        }
      for (const Lane& lane : lanes) banks[lane.address / 4 % 32].insert(lane.address / 4);
      line.bytes += static_cast<std::int64_t>(bytes.size());
      line.sectors += static_cast<std::int64_t>(sectors.size());
      line.sectors_needed += static_cast<std::int64_t>((bytes.size() + 31) / 32);
      std::size_t passes = 0;
      for (const auto& bank : banks) passes = std::max(passes, bank.size());
      line.passes += static_cast<std::int64_t>(passes);
    }
    requests.clear();
  }

  // ---- The threads take turns ----

  void run_thread(int number) {
    EmulatedThread thread(*this, number);
    try {
      (*kernel)(thread);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
    fibers[static_cast<std::size_t>(number)]->at = Fiber::At::end;
  }
  void pause(Fiber::At at, std::uint32_t line) {
    Fiber& fiber = *fibers[static_cast<std::size_t>(running)];
    fiber.at = at;
    fiber.line = line;
    fiber.suspend();
  }
  void go_on(int thread) {
    running = thread;
    Fiber& fiber = *fibers[static_cast<std::size_t>(thread)];
    fiber.at = Fiber::At::running;
    fiber.resume();
    if (error) std::rethrow_exception(error);
  }
  void run_block() {
    shared.assign(static_cast<std::size_t>(how.shared_floats), std::nanf(""));
    copying.assign(shared.size(), 0);
    std::erase_if(histories, [](const auto& each) { return each.first < shared_end; });
    fibers.clear();
    for (int thread = 0; thread < how.threads; ++thread)
      fibers.push_back(std::make_unique<Fiber>([this, thread] { run_thread(thread); }));
    while (!run_once()) {
    }
    count_requests();
  }
  // Each thread that need not wait goes on to where it has to. Returns whether all have ended.
  bool run_once() {
    bool one_went_on = false;
    for (int n = 0; n < how.threads; ++n) {
      const int thread = how.last_first ? how.threads - 1 - n : n;
      if (fibers[static_cast<std::size_t>(thread)]->at != Fiber::At::running) continue;
      go_on(thread);
      one_went_on = true;
    }
    for (int warp = 0; warp < how.threads / warp_size; ++warp)
      one_went_on = exchange(warp) || one_went_on;
    const auto all = [&](Fiber::At at) {
      return std::ranges::all_of(fibers, [at](const auto& fiber) { return fiber->at == at; });
    };
    if (all(Fiber::At::end)) return true;
    if (all(Fiber::At::sync)) {
      meet();
      one_went_on = true;
    }
    if (!one_went_on) fail_as_all_wait();
    return false;
  }
  // All threads are at a sync(), or all at a sum().
  void meet() {
    float sum = 0;
    for (auto& fiber : fibers) {
      require(fiber->sums == fibers[0]->sums,
              "some threads wait in the {} of line {}, others in the {} of line {}",
              fibers[0]->sums ? "sum()" : "sync()", fibers[0]->line,
              fiber->sums ? "sum()" : "sync()", fiber->line);
      sum += fiber->value;
    }
    for (auto& fiber : fibers) {
      fiber->result = sum;
      fiber->sums = false;
      fiber->at = Fiber::At::running;
      ++fiber->syncs;
    }
  }
  float sum(int thread, float value, std::uint32_t line) {
    Fiber& fiber = *fibers[static_cast<std::size_t>(thread)];
    fiber.sums = true;
    fiber.value = value;
    pause(Fiber::At::sync, line);
    return fiber.result;
  }
  [[noreturn]] void fail_as_all_wait() const {
    const auto first = [&](Fiber::At at) {
      return std::ranges::find_if(fibers, [at](const auto& each) { return each->at == at; }) -
             fibers.begin();
    };
    const auto count = static_cast<std::ptrdiff_t>(fibers.size());
    const auto at_sync = first(Fiber::At::sync), at_end = first(Fiber::At::end);
    const auto line = [&](std::ptrdiff_t at) { return fibers[static_cast<std::size_t>(at)]->line; };
    if (at_sync < count && at_end < count)
      fail(
          "thread {} waits in the sync() of line {}, and thread {} has returned: all threads of "
          "a block must reach every sync()",
          at_sync, line(at_sync), at_end);
    const auto in_shuffle = first(Fiber::At::shuffle);
    fail(
        "thread {} waits in the shuffle of line {} for a lane of its mask, which waits in the {} "
        "of line {}",
        in_shuffle, line(in_shuffle), at_sync < count ? "sync()" : "shuffle",
        at_sync < count ? line(at_sync) : line(in_shuffle));
  }
  // Lets the lanes of a warp go on whose shuffle is complete. Returns whether there are any.
  bool exchange(int warp) {
    const auto lane = [&](int n) -> Fiber& {
      return *fibers[static_cast<std::size_t>(warp * warp_size + n)];
    };
    bool any = false;
    for (int n = 0; n < warp_size; ++n) {
      if (lane(n).at != Fiber::At::shuffle) continue;
      const std::uint32_t mask = lane(n).mask, line = lane(n).line;
      bool complete = true;
      for (int other = 0; other < warp_size; ++other) {
        if ((mask >> other & 1) == 0) continue;
        if (lane(other).at == Fiber::At::end)
          fail(
              "thread {} calls the shuffle of line {} with the mask {:#010x}, which names lane {}: "
              "that thread has returned",
              warp * warp_size + n, line, mask, other);
        complete = complete && lane(other).at == Fiber::At::shuffle && lane(other).line == line &&
                   lane(other).mask == mask;
      }
      if (!complete) continue;
      for (int other = 0; other < warp_size; ++other)
        if (mask >> other & 1) {
          const int source = lane(other).source;
          lane(other).result = mask >> source & 1 ? lane(source).value : std::nanf("");
        }
      for (int other = 0; other < warp_size; ++other)
        if (mask >> other & 1) lane(other).at = Fiber::At::running;
      any = true;
    }
    return any;
  }
  float shuffle(int thread, std::uint32_t mask, float value, int source, std::uint32_t line) {
    Fiber& fiber = *fibers[static_cast<std::size_t>(thread)];
    const int own = thread % warp_size;
    require(
        (mask >> own & 1) != 0,
        "thread {} calls the shuffle of line {} with the mask {:#010x}, which does not name its "
        "lane {}",
        thread, line, mask, own);
    fiber.mask = mask;
    fiber.value = value;
    fiber.source = source < 0 || source >= warp_size ? own : source;
    pause(Fiber::At::shuffle, line);
    return fiber.result;
  }

  static constexpr std::uint64_t shared_end = 1 << 20;  // shared memory lies below all addresses
};

int EmulatedThread::threads() const {
  return state_.how.threads;
}
std::int64_t EmulatedThread::block() const {
  return state_.block;
}
std::int64_t EmulatedThread::blocks() const {
  return state_.how.blocks;
}

void EmulatedThread::access(const char* name, const void* data, std::int64_t i, std::int64_t size,
                            std::size_t bytes_each, int count, bool forbidden, bool writes,
                            const Where& where) {
  const char* const does = writes ? "writes" : "reads";
  require(!forbidden, "line {}: writes {}[{}], which is an input", where.line(), name, i);
  require(i >= 0 && i + count <= size,
          "line {}: thread {} of block {} {} {}[{}], which has {} numbers", where.line(), thread_,
          block(), does, name, i < 0 ? i : i + count - 1, size);
  const auto address =
      reinterpret_cast<std::uint64_t>(data) + static_cast<std::uint64_t>(i) * bytes_each;
  const int bytes = count * static_cast<int>(bytes_each);
  require(
      address % static_cast<std::uint64_t>(bytes) == 0,
      "line {}: thread {} of block {} {} a pack from {}[{}] on, whose address is no multiple of "
      "{} bytes: a GPU stops with \"misaligned address\"",
      where.line(), thread_, block(), does, name, i, bytes);
  const Place place{name, where.line(), where.column(), writes};
  state_.note(thread_, place, address, bytes);
  for (int n = 0; n < count; ++n)
    state_.note_use(thread_, place, address + static_cast<std::uint64_t>(n) * bytes_each, i + n,
                    false);
}

namespace {

std::size_t shared_at(EmulatedState& state, int thread, int i, bool writes, bool atomic,
                      const std::source_location& where) {
  require(i >= 0 && i < state.how.shared_floats,
          "line {}: thread {} of block {} {} float {} of shared memory, which has {}", where.line(),
          thread, state.block, writes ? "writes" : "reads", i, state.how.shared_floats);
  const Place place{"shared memory", where.line(), where.column(), writes};
  const auto address = static_cast<std::uint64_t>(i) * 4;
  state.note(thread, place, address, 4);
  state.note_use(thread, place, address, i, atomic);
  if (const std::uint32_t line = state.copying[static_cast<std::size_t>(i)]; line > 0)
    fail(
        "shared memory[{}]: thread {} of block {} {} it in line {}, before the copy of line {} has "
        "arrived: commit_copies() and wait_copies() come first, then sync()",
        i, thread, state.block, writes ? "writes" : "reads", where.line(), line);
  return static_cast<std::size_t>(i);
}

}  // namespace

float EmulatedThread::load_shared(int i, Where where) {
  ++state_.shared_loads;
  if (!state_.fibers[static_cast<std::size_t>(thread_)]->copies.empty())
    ++state_.loads_under_copies;
  return state_.shared[shared_at(state_, thread_, i, false, false, where)];
}
void EmulatedThread::store_shared(int i, float value, Where where) {
  state_.shared[shared_at(state_, thread_, i, true, false, where)] = value;
}
float EmulatedThread::add_shared(int i, float value, Where where) {
  float& at = state_.shared[shared_at(state_, thread_, i, true, true, where)];
  return std::exchange(at, at + value);
}
void EmulatedThread::start_copy(int into, const float* from, const Where& where) {
  require(
      into >= 0 && into % 4 == 0 && into + 4 <= state_.how.shared_floats,
      "line {}: thread {} of block {} copies to the floats from {} on of shared memory, which has "
      "{}; a copy begins at a multiple of 4",
      where.line(), thread_, block(), into, state_.how.shared_floats);
  const Place place{"shared memory", where.line(), where.column(), true};
  for (int i = into; i < into + 4; ++i) {
    state_.note_use(thread_, place, static_cast<std::uint64_t>(i) * 4, i, false);
    state_.copying[static_cast<std::size_t>(i)] = where.line();
  }
  Fiber& fiber = *state_.fibers[static_cast<std::size_t>(thread_)];
  fiber.copies.push_back({into, from, where.line(), fiber.batch});
}
void EmulatedThread::commit_copies() {
  ++state_.fibers[static_cast<std::size_t>(thread_)]->batch;
}
void EmulatedThread::wait_copies(int newest) {
  Fiber& fiber = *state_.fibers[static_cast<std::size_t>(thread_)];
  std::erase_if(fiber.copies, [&](const Copy& copy) {
    if (copy.batch >= fiber.batch - newest) return false;
    for (int n = 0; n < 4; ++n) {
      const auto at = static_cast<std::size_t>(copy.into + n);
      state_.shared[at] = copy.from == nullptr ? 0.0f : copy.from[n];
      state_.copying[at] = 0;
    }
    return true;
  });
}
void EmulatedThread::sync(Where where) {
  state_.pause(Fiber::At::sync, where.line());
}
float EmulatedThread::sum(float value, Where where) {
  return state_.sum(thread_, value, where.line());
}
float EmulatedThread::shuffle_down(std::uint32_t mask, float value, int distance, Where where) {
  return state_.shuffle(thread_, mask, value, thread_ % warp_size + distance, where.line());
}
float EmulatedThread::shuffle_xor(std::uint32_t mask, float value, int distance, Where where) {
  return state_.shuffle(thread_, mask, value, (thread_ % warp_size) ^ distance, where.line());
}
float EmulatedThread::exp(float x) {
  return std::exp(x);
}
float EmulatedThread::log(float x) {
  return std::log(x);
}
float EmulatedThread::sqrt(float x) {
  return std::sqrt(x);
}

Report launch(const Launch& how, const std::function<void(EmulatedThread&)>& kernel) {
  require(how.threads > 0 && how.threads % warp_size == 0,
          "a block of {} threads: expected a multiple of {}", how.threads, warp_size);
  EmulatedState state(how);
  state.kernel = &kernel;
  Report report;
  for (std::int64_t n = 0; n < how.blocks; ++n) {
    state.block = how.last_first ? how.blocks - 1 - n : n;
    state.run_block();
    if (state.block == 0) report.syncs = state.fibers[0]->syncs;
  }
  for (const auto& [place, line] : state.lines) report.lines.push_back(line);
  report.shared_loads = state.shared_loads;
  report.loads_under_copies = state.loads_under_copies;
  std::ranges::stable_sort(report.lines, {}, &Requests::line);
  return report;
}

}  // namespace ringside::gpu
