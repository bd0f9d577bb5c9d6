#include "autograd/profile.hpp"

#include <algorithm>
#include <utility>

namespace ringside::autograd {

constinit thread_local Profile* Profile::active_ = nullptr;

Profile::Profile() : outer_(std::exchange(active_, this)) {}

Profile::~Profile() { active_ = outer_; }

OpTime& Profile::entry(std::string_view name) {
  const auto found = std::find_if(ops_.begin(), ops_.end(), [&](const OpTime& op) { return op.name == name; });
  return found != ops_.end() ? *found : ops_.emplace_back(OpTime{std::string(name)});
}

double Profile::lap() {
  const auto now = Clock::now();
  return Seconds(now - std::exchange(last_, now)).count();
}

void Profile::add_forward(const char* op) {
  OpTime& time = entry(op);
  time.forward += lap();
  ++time.calls;
}

void Profile::add_gemm(const Product& product, double seconds) {
  gemm_seconds_ += seconds;
  const auto found = std::find_if(products_.begin(), products_.end(), [&](const Product& p) {
    return p.a == product.a && p.b == product.b && p.m == product.m && p.n == product.n && p.k == product.k;
  });
  ++(found != products_.end() ? *found : products_.emplace_back(product)).calls;
}

}  // namespace ringside::autograd
