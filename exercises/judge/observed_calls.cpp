#include "exercises/judge/observed_calls.hpp"

#include <algorithm>
#include <fstream>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include "base/trace/trace.hpp"
#include "collectives/bootstrap/connections.hpp"
#include "collectives/rank_names.hpp"

namespace ringside::exercises {

using namespace collectives;

CallObserver::Caller CallObserver::Caller::here() {
  Caller caller{.id = ::gettid()};
  pthread_getcpuclockid(pthread_self(), &caller.clock);
  return caller;
}

// Its state is S, or it is in a blocking call, which runs on its own thread. Where the state cannot
// be read, every thread seems to sleep.
bool CallObserver::Caller::sleeps() const {
  if (id == ::gettid()) return true;
  std::ifstream file(fmt::format("/proc/self/task/{}/stat", id));
  std::string stat;
  std::getline(file, stat);
  const std::size_t name_ends = stat.rfind(')');
  return name_ends == stat.npos || stat.compare(name_ends, 3, ") S") == 0;
}

std::chrono::nanoseconds CallObserver::Caller::cpu_time() const {
  timespec time{};
  clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void CallObserver::hold(std::chrono::milliseconds patience) {
  const std::lock_guard lock(mutex_);
  patience_ = patience;
  caller_ = Caller::here();
  caller_spent_ = caller_.cpu_time();
  held_ = !impatient_;
}

void CallObserver::slow_down(std::chrono::milliseconds each) {
  const std::lock_guard lock(mutex_);
  caller_spent_ = caller_.cpu_time();
  delay_ = each;
}

void CallObserver::release() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

std::vector<ObservedCall> CallObserver::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::size_t CallObserver::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void CallObserver::clear() {
  const std::lock_guard lock(mutex_);
  calls_.clear();
  ended_ = 0;
}

void CallObserver::before(const Call& call, const void* input, const void* output) {
  if (call.collective == Collective::barrier) return;
  std::unique_lock lock(mutex_);
  ObservedCall seen{call, input, output, {}, Trace::here() != nullptr};
  if (call.type == DataType::fp64 && call.collective == Collective::all_reduce) {
    const auto* numbers = static_cast<const double*>(input);
    seen.begins.assign(numbers, numbers + std::min<std::uint64_t>(call.count, 2));
  }
  calls_.push_back(std::move(seen));
  for (std::chrono::milliseconds slept{0}; held_;) {
    changed_.wait_for(lock, look);
    slept = caller_.sleeps() ? slept + look : std::chrono::milliseconds(0);
    if (!held_ || (slept < patience_ && caller_.cpu_time() - caller_spent_ < patience_)) continue;
    impatient_ = std::string(call.label.view());
    held_ = false;
    changed_.notify_all();
  }
  lock.unlock();
  delay();
}

void CallObserver::delay() {
  const auto still = [this] {
    const std::lock_guard lock(mutex_);
    return delay_;
  };
  const auto first = still();
  if (first.count() == 0) return;
  std::this_thread::sleep_for(first);
  const auto end = Clock::now() + patience_;
  while (still().count() > 0 && !caller_.sleeps() && caller_.cpu_time() - caller_spent_ < look &&
         Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void CallObserver::after(const Call& call) {
  if (call.collective == Collective::barrier) return;
  const std::lock_guard lock(mutex_);
  ++ended_;
}

class ObservedBackend final : public Backend {
 public:
  ObservedBackend(std::unique_ptr<Backend> backend, std::shared_ptr<CallObserver> observer)
      : backend_(std::move(backend)), observer_(std::move(observer)) {}
  int rank() const override { return backend_->rank(); }
  int size() const override { return backend_->size(); }
  std::string name() const override { return backend_->name(); }
  void run(const Call& call, const void* input, void* output, const BlockBegins& begins) override {
    observer_->before(call, input, output);
    backend_->run(call, input, output, begins);
    observer_->after(call);
  }
  void abort(const std::string& cause) noexcept override { backend_->abort(cause); }
  void interrupt(const std::string& cause) noexcept override { backend_->interrupt(cause); }
  Traffic traffic() const override { return backend_->traffic(); }
  void set_names(const RankNames& names) override { backend_->set_names(names); }
  Endpoint listen() override { return backend_->listen(); }
  std::unique_ptr<Backend> connect_sub_group(const std::string& sub_group, int rank,
                                             const std::vector<Endpoint>& members) override {
    return backend_->connect_sub_group(sub_group, rank, members);
  }
  Streams connect_streams(const std::string& sub_group, int rank,
                          const std::vector<Endpoint>& members) override {
    return backend_->connect_streams(sub_group, rank, members);
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::shared_ptr<CallObserver> observer_;
};

std::unique_ptr<Backend> observed(std::unique_ptr<Backend> backend,
                                  std::shared_ptr<CallObserver> observer) {
  return std::make_unique<ObservedBackend>(std::move(backend), std::move(observer));
}

}  // namespace ringside::exercises
