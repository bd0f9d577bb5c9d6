#include "base/trace/trace.hpp"

namespace ringside {

void Trace::add(Span span) {
  const std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
}

void Trace::add(const Message& message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(message);
}

void Trace::add(Memory memory) {
  const std::lock_guard lock(mutex_);
  memory_.push_back(std::move(memory));
}

const char* name_of(Trace::Track track) {
  return track == Trace::Track::compute ? "compute" : "communication";
}

const char* name_of(Trace::Kind kind) {
  static constexpr const char* names[] = {"phase", "op", "wait", "call"};
  return names[static_cast<int>(kind)];
}

}  // namespace ringside
