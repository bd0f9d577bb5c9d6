#include "autograd/kernels/profile.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "autograd/tensor/storage.hpp"
#include "base/trace.hpp"

namespace ringside::autograd {

constinit thread_local Profile* Profile::active_ = nullptr;

Profile::Profile(std::function<void()> synchronise)
    : outer_(std::exchange(active_, this)), synchronise_(std::move(synchronise)) {}

Profile::~Profile() {
  active_ = outer_;
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

double Profile::lap(std::string_view op, const char* direction) {
  if (synchronise_) synchronise_();
  const auto now = Clock::now(), start = std::exchange(last_, now);
  if (Trace* trace = Trace::here()) {
    trace->add(
        {Trace::Track::compute, Trace::Kind::op, fmt::format("{}{}", op, direction), start, now});
    add_memory(*trace, now);
  }
  return Seconds(now - start).count();
}

void Profile::add_forward(const char* op) {
  OpTime& time = entry(op);
  time.forward += lap(op, "");
  ++time.calls;
}

void Profile::add_backward(const char* op) {
  entry(op).backward += lap(op, " backward");
}

void Profile::add_gemm(const Product& product, double seconds) {
  gemm_seconds_ += seconds;
  const auto found = std::find_if(products_.begin(), products_.end(), [&](const Product& p) {
    return p.a == product.a && p.b == product.b && p.m == product.m && p.n == product.n &&
           p.k == product.k && p.bf16 == product.bf16;
  });
  ++(found != products_.end() ? *found : products_.emplace_back(product)).calls;
}

}  // namespace ringside::autograd
