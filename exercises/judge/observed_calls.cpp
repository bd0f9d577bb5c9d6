#include "exercises/judge/observed_calls.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/trace/trace.hpp"
#include "collectives/rank_names.hpp"

namespace ringside::exercises {

using namespace collectives;

void CallObserver::hold() {
  const std::lock_guard lock(mutex_);
  held_ = !impatient_;
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
  if (!changed_.wait_for(lock, patience, [this] { return !held_; })) {
    impatient_ = std::string(call.label.view());
    held_ = false;
    changed_.notify_all();
  }
  const auto delay = delay_;
  lock.unlock();
  if (delay.count() > 0) std::this_thread::sleep_for(delay);
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
  void run(const Call& call, const void* input, void* output) override {
    observer_->before(call, input, output);
    backend_->run(call, input, output);
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

 private:
  std::unique_ptr<Backend> backend_;
  std::shared_ptr<CallObserver> observer_;
};

std::unique_ptr<Backend> observed(std::unique_ptr<Backend> backend,
                                  std::shared_ptr<CallObserver> observer) {
  return std::make_unique<ObservedBackend>(std::move(backend), std::move(observer));
}

}  // namespace ringside::exercises
