#include "tests/cuda_standin/event.hpp"

#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda_standin/machine.hpp"
#include "tests/cuda_standin/memory.hpp"
#include "tests/cuda_standin/shared_file.hpp"

namespace ringside::standin {
namespace {

struct Events {
  Lock lock;
  std::map<const void*, std::shared_ptr<Event>> all;
};
Events& events() {
  static Events& the = *new Events;
  return the;
}

std::shared_ptr<Event> keep(std::shared_ptr<Event> event) {
  const std::lock_guard guard(events().lock);
  events().all[event.get()] = event;
  ++machine().events;
  return event;
}

constexpr std::size_t page = 4096;

}  // namespace

std::shared_ptr<Event> Event::make(unsigned flags) {
  const std::shared_ptr<Event> event(new Event);
  event->timing_ = !(flags & cudaEventDisableTiming);
  if (flags & cudaEventInterprocess) {
    const SharedFile file = SharedFile::make(page);
    event->file_ = file.descriptor;
    event->counts_ = new (file.memory) Counts;
  }
  return keep(event);
}

std::shared_ptr<Event> Event::open(const cudaIpcEventHandle_t& handle) {
  FileHandle named;
  std::memcpy(&named, &handle, sizeof named);
  const SharedFile file = SharedFile::open(named);
  if (!file.memory) return nullptr;
  const std::shared_ptr<Event> event(new Event);
  event->counts_ = static_cast<Counts*>(file.memory);
  event->opened_ = true;
  return keep(event);
}

std::shared_ptr<Event> Event::of(cudaEvent_t handle) {
  const std::lock_guard guard(events().lock);
  const auto found = events().all.find(handle);
  return found == events().all.end() ? nullptr : found->second;
}

Event::~Event() {
  if (counts_ != &own_) ::munmap(counts_, page);
  if (file_ >= 0) ::close(file_);
}

bool Event::share(cudaIpcEventHandle_t& handle) const {
  if (file_ < 0) return false;
  const FileHandle named{::getpid(), file_, page, 0};
  handle = {};
  std::memcpy(&handle, &named, sizeof named);
  return true;
}

cudaError_t Event::milliseconds_since(const Event& earlier, float& milliseconds) const {
  if (!is_timed() || !earlier.is_timed()) return cudaErrorInvalidResourceHandle;
  for (const Event* event : {&earlier, this})
    if (event->counts_->done < event->counts_->recorded) return cudaErrorNotReady;
  milliseconds = static_cast<float>(nanoseconds_ - earlier.nanoseconds_) * 1e-6F;
  return cudaSuccess;
}

void Event::record(Stream& stream) {
  const auto capture = stream.capture();
  captured_ = capture;
  recorded_on_ = &stream;
  if (capture) return;
  const std::uint64_t record = ++counts_->recorded;
  stream.add([self = shared_from_this(), record] {
    before(&self->tokens_[record % sizeof self->tokens_]);
    self->nanoseconds_ =
        std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    self->counts_->done = record;
  });
}

void Event::hold_back(Stream& stream) {
  if (const auto capture = captured_.lock()) {
    capture->unjoined.erase(recorded_on_);
    if (!stream.capture()) stream.join(capture);
    return;
  }
  const std::uint64_t record = counts_->recorded;
  if (record == 0) return;
  stream.add([self = shared_from_this(), record] { self->wait_for(record); });
}

void Event::wait() const {
  wait_for(counts_->recorded);
  host_has_waited();
}

// The owner may be another process, so this polls.
void Event::wait_for(std::uint64_t record) const {
  for (int polls = 0; counts_->done < record; ++polls)
    if (polls < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  after(&tokens_[record % sizeof tokens_]);
}

void Event::destroy() {
  const std::lock_guard guard(events().lock);
  if (events().all.erase(this) == 1) --machine().events;
}

}  // namespace ringside::standin
