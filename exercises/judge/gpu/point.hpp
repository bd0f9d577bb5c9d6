// What the host, a stream or an event of an emulated GPU has to wait for.
#pragma once

#include <algorithm>
#include <vector>

namespace ringside::gpu {

// Operations, or nodes of a graph.
class Operations {
 public:
  bool has(std::size_t number) const { return number < has_.size() && has_[number]; }
  void add(std::size_t number) {
    has_.resize(std::max(has_.size(), number + 1));
    has_[number] = true;
  }
  void add(const Operations& others) {
    has_.resize(std::max(has_.size(), others.has_.size()));
    for (std::size_t i = 0; i < others.has_.size(); ++i)
      if (others.has_[i]) has_[i] = true;
  }

 private:
  std::vector<bool> has_;
};

struct Point {
  Operations after;  // that have ended before it
  double time = 0;
  void join(const Point& other) {
    after.add(other.after);
    time = std::max(time, other.time);
  }
};

}  // namespace ringside::gpu
