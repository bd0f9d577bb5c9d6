#include "autograd/kernels/profile.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "autograd/tensor/storage.hpp"
#include "base/trace/trace.hpp"

namespace ringside::autograd {

constinit thread_local Profile* Profile::active_ = nullptr;

Profile::Profile(Device device)
    : here_(active_, this), device_(device == Device::cpu ? nullptr : &device_memory(device)) {
  begin();
}

void Profile::begin() {
  if (!active_) return;
  active_->last_ = Clock::now();
  if (active_->device_) active_->last_mark_ = active_->device_->mark();
}

const std::vector<OpTime>& Profile::ops() {
  for (const Lap& lap : std::exchange(laps_, {}))
    ops_[lap.op].*lap.time += lap.end->seconds_since(*lap.begin);
  return ops_;
}

OpTime& Profile::entry(std::string_view name) {
  const auto found =
      std::find_if(ops_.begin(), ops_.end(), [&](const OpTime& op) { return op.name == name; });
  return found != ops_.end() ? *found : ops_.emplace_back(OpTime{std::string(name)});
}

// Records how much memory of each kind is in use.
static void add_memory(Trace& trace, Clock::time_point now) {
  if (trace.memory().empty()) {
    std::vector<std::string> names;
    for (const MemoryKind kind : all_memory_kinds) names.emplace_back(name_of(kind));
    trace.set_memory_kinds(names);
  }
  Trace::Memory held{now, {}};
  for (const MemoryKind kind : all_memory_kinds) held.bytes.push_back(memory_use(kind).current);
  trace.add(std::move(held));
}

void Profile::end_lap(OpTime& op, double OpTime::*time, std::string_view name,
                      const char* direction) {
  const auto now = Clock::now(), start = std::exchange(last_, now);
  if (device_) {
    std::shared_ptr<StreamMark> end = device_->mark();
    laps_.push_back(
        {static_cast<std::size_t>(&op - ops_.data()), time, std::exchange(last_mark_, end), end});
  } else {
    op.*time += Seconds(now - start).count();
  }
  if (Trace* trace = Trace::here()) {
    trace->add(
        {Trace::Track::compute, Trace::Kind::op, fmt::format("{}{}", name, direction), start, now});
    add_memory(*trace, now);
  }
}

void Profile::note_forward(const char* op) {
  if (!active_) return;
  OpTime& time = active_->entry(op);
  active_->end_lap(time, &OpTime::forward, op, "");
  ++time.calls;
}

void Profile::note_backward(const char* op) {
  if (active_) active_->end_lap(active_->entry(op), &OpTime::backward, op, " backward");
}

void Profile::note_gemm(const Product& product, double seconds) {
  if (!active_) return;
  active_->gemm_seconds_ += seconds;
  std::vector<Product>& products = active_->products_;
  const auto found = std::find_if(products.begin(), products.end(), [&](const Product& p) {
    return p.a == product.a && p.b == product.b && p.m == product.m && p.n == product.n &&
           p.k == product.k && p.bf16 == product.bf16;
  });
  ++(found != products.end() ? *found : products.emplace_back(product)).calls;
}

}  // namespace ringside::autograd
