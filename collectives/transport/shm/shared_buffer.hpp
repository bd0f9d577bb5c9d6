// Memory for numbers that collectives work on in place: what ProcessGroup::allocate returns.
//
//     SharedBuffer<float> gradients = group.allocate<float>(count);
//     group.all_reduce(gradients.span());
#pragma once

#include <memory>
#include <span>

#include "collectives/transport/shm/shared_heap.hpp"

namespace ringside::collectives {

// A handle: copies speak of the same memory, which is freed with the last of them.
template <class T>
class SharedBuffer {
 public:
  // `shared`: from memory that ranks beside this one can read. Else from the heap.
  SharedBuffer(std::size_t count, bool shared)
      : count_(count), data_(shared ? shared_data(count) : std::make_shared<T[]>(count)) {}

  std::size_t size() const { return count_; }
  std::span<T> span() const { return {data_.get(), count_}; }

 private:
  static std::shared_ptr<T[]> shared_data(std::size_t count) {
    const auto bytes = allocate_shared(count * sizeof(T));
    return {bytes, reinterpret_cast<T*>(bytes.get())};
  }

  std::size_t count_;
  std::shared_ptr<T[]> data_;
};

}  // namespace ringside::collectives
