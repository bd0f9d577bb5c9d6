#include "tests/cuda_standin/stream.hpp"

#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "tests/cuda_standin/machine.hpp"
#include "tests/cuda_standin/memory.hpp"
#include "tests/cuda_standin/standin.hpp"

namespace ringside::standin {
namespace {

// The streams that exist, also those that were destroyed and still have work; the default streams.
struct Streams {
  Lock lock;
  std::map<const void*, std::shared_ptr<Stream>> all;
  std::shared_ptr<Stream> defaults[most_devices];
  char ended[most_devices] = {};  // a token for each device: the work of streams that have ended
};
Streams& streams() {
  static Streams& the = *new Streams;
  return the;
}

std::atomic<int> held = 0;
std::atomic<std::uint64_t> made = 0;

}  // namespace

struct Stream::Work {
  std::function<void()> body;
  bool late = false;
};

HeldStreams::HeldStreams() {
  ++held;
}
HeldStreams::~HeldStreams() {
  --held;
  held.notify_all();
}

Stream::Stream(int device) : device_(device), number_(++made) {}

std::shared_ptr<Stream> Stream::make(int device) {
  const std::shared_ptr<Stream> stream(new Stream(device));
  {
    const std::lock_guard guard(streams().lock);
    streams().all[stream.get()] = stream;
  }
  std::thread([stream] { stream->serve(); }).detach();
  return stream;
}

std::shared_ptr<Stream> Stream::of(cudaStream_t handle) {
  Streams& the = streams();
  if (handle) {
    const std::lock_guard guard(the.lock);
    const auto found = the.all.find(handle);
    const bool exists = found != the.all.end() && !found->second->closing_;
    return exists ? found->second : nullptr;
  }
  const int device = current_device();
  {
    const std::lock_guard guard(the.lock);
    if (the.defaults[device]) return the.defaults[device];
  }
  const auto fresh = make(device);
  const std::lock_guard guard(the.lock);
  if (!the.defaults[device]) the.defaults[device] = fresh;
  return the.defaults[device];
}

void Stream::wait_for_device(int device) {
  std::vector<std::shared_ptr<Stream>> those;
  {
    const std::lock_guard guard(streams().lock);
    after(&streams().ended[device]);
    for (const auto& [address, stream] : streams().all)
      if (stream->device_ == device) those.push_back(stream);
  }
  for (const auto& stream : those) stream->wait();
}

std::shared_ptr<Capture> Stream::capture() const {
  const std::lock_guard guard(lock_);
  return capture_ && !capture_->ended ? capture_ : nullptr;
}

void Stream::join(std::shared_ptr<Capture> capture) {
  const std::lock_guard guard(lock_);
  capture_ = std::move(capture);
}

void Stream::add(std::function<void()> body, bool late) {
  if (const auto into = capture()) {
    const std::lock_guard guard(streams().lock);  // several threads may capture
    into->work.push_back(std::move(body));
    if (into->origin != this) into->unjoined.insert(this);
    return;
  }
  auto work = std::make_unique<Work>(Work{std::move(body), late});
  before(work.get());
  {
    const std::lock_guard guard(lock_);
    queue_.push_back(std::move(work));
    ++added_;
  }
  ++changes_;
  changes_.notify_all();
}

bool Stream::idle() const {
  if (done_ != added_) return false;
  after(this);
  host_has_waited();
  return true;
}

void Stream::wait() const {
  const std::uint32_t wanted = added_;
  for (std::uint32_t done = done_; static_cast<std::int32_t>(done - wanted) < 0; done = done_)
    done_.wait(done);
  after(this);
  host_has_waited();
}

void Stream::destroy() {
  closing_ = true;
  ++changes_;
  changes_.notify_all();
}

void Stream::serve() {
  for (;;) {
    const std::uint32_t seen = changes_;
    std::unique_ptr<Work> work;
    {
      const std::lock_guard guard(lock_);
      if (!queue_.empty()) {
        work = std::move(queue_.front());
        queue_.pop_front();
      }
    }
    if (!work && closing_) {
      const std::lock_guard guard(streams().lock);
      before(&streams().ended[device_]);
      streams().all.erase(this);
      return;
    }
    if (!work) {
      changes_.wait(seen);
      continue;
    }
    for (int holding = held; holding != 0; holding = held) held.wait(holding);
    delay(done_, work->late);
    after(work.get());
    work->body();
    work.reset();
    before(this);
    ++done_;
    done_.notify_all();
  }
}

// One piece of work in 16 begins late, so that other streams overtake it.
void Stream::delay(std::uint64_t number, bool late) const {
  const std::uint64_t seed = machine().seed;
  if (seed == 0) return;
  if (late || random_below(16, seed, number_, number) == 0)
    std::this_thread::sleep_for(
        std::chrono::microseconds(50 + random_below(300, seed, number_ + 1000, number)));
}

}  // namespace ringside::standin
