// Tensor: an array of numbers that remembers how it was made, so that gradients can be asked of it.
//
// A Tensor is a handle: copies are the same variable (same data, same gradient, same history), as
// in Python. detach() makes another variable on the same data.
//
//     Tensor --> storage, offset, shape, strides, dtype        where the numbers are (on which device, the storage knows)
//            --> grad_fn : Node                                 the op that made it (none: it is a leaf, made by the user)
//            --> grad, hooks                                    leaves that require a gradient (parameters)
//
// Every argument that does not fit throws ringside::Error with what was expected and what was seen.
// A tensor and its graph belong to one thread at a time; different threads may work on different
// graphs without locks.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/tensor/dtype.hpp"
#include "autograd/tensor/storage.hpp"

namespace ringside::autograd {

using Shape = std::vector<std::int64_t>;  // also strides, in elements; {} is a scalar

std::int64_t elements_of(const Shape& shape);  // 1 for {}
std::string to_string(const Shape& shape);     // "[2, 3]"

class Node;
class AccumulateGrad;
class Tensor;

// Called with the parameter after its gradient is complete. It must not own the parameter: that
// would be a cycle of references.
using PostAccumulateGradHook = std::function<void(const Tensor& parameter)>;
// Called with the gradient of a tensor that an op made, once it is complete and before that op's
// backward runs.
using GradHook = std::function<void(const Tensor& grad)>;

class Tensor {
 public:
  Tensor() = default;  // undefined: no gradient, no bias. Only defined() and copies are allowed.

  // New tensors: contiguous, row-major, owning fresh memory, leaves without gradient. On a device
  // other than the CPU numbers are fp32, bf16 or int32; fp64 is refused.
  static Tensor empty(Shape shape, DType dtype = DType::fp32,
                      Device device = Device::cpu);  // contents undefined
  static Tensor zeros(Shape shape, DType dtype = DType::fp32, Device device = Device::cpu);
  static Tensor full(Shape shape, double value, DType dtype = DType::fp32,
                     Device device = Device::cpu);
  template <class T>
  static Tensor from(std::span<const T> values, Shape shape,
                     Device device = Device::cpu);  // copies; the type is T's
  template <class T>
  static Tensor from(const std::vector<T>& values, Shape shape, Device device = Device::cpu) {
    return from(std::span<const T>(values), std::move(shape), device);
  }
  template <class T>
  static Tensor from(std::initializer_list<T> values, Shape shape, Device device = Device::cpu) {
    return from(std::span<const T>(values.begin(), values.size()), std::move(shape), device);
  }
  static Tensor scalar(double value, DType dtype = DType::fp32, Device device = Device::cpu);

  // A contiguous window on `storage`, `offset` elements in: how gradients live in buckets, and
  // parameters in flat buffers.
  static Tensor view_of(std::shared_ptr<Storage> storage, std::int64_t offset, Shape shape,
                        DType dtype = DType::fp32);

  bool defined() const { return impl_ != nullptr; }
  bool is_same(const Tensor& other) const {
    return impl_ == other.impl_;
  }  // the same variable, not merely equal numbers

  const Shape& shape() const;
  const Shape& strides() const;
  std::int64_t dim() const;                 // number of dimensions
  std::int64_t size(std::int64_t d) const;  // of dimension d; d < 0 counts from the end
  std::int64_t elements() const;
  DType dtype() const;
  std::int64_t offset() const;  // in elements, from the start of the storage
  const std::shared_ptr<Storage>& storage() const;
  Device device() const;
  bool is_contiguous() const;

  // The address of the first element. Throws if T is not the dtype, the storage is dropped, or its
  // memory is not the host's to look into. Valid while the storage lives.
  template <class T>
  T* data() const;
  // All elements in order; throws if not contiguous.
  template <class T>
  std::span<T> values() const;
  // The one element of a tensor that has one. Of a device's this waits until it is computed.
  double item() const;
  // The address of the first element on whatever device: for those who hand it on (collectives,
  // kernels) and do not look. Throws if the storage is dropped.
  std::byte* address() const;

  // Copies the numbers of `source` (same shape and dtype, any strides, any device) into this
  // tensor's memory. No history is recorded.
  void copy_(const Tensor& source) const;
  void fill_(double value) const;

  // Ops that look at the same memory in another way; they are differentiable. contiguous() is this
  // tensor itself if it can be; reshape views if contiguous and copies otherwise, and one size may
  // be -1.
  Tensor reshape(Shape shape) const;
  Tensor transpose(std::int64_t dim0, std::int64_t dim1) const;
  Tensor narrow(std::int64_t dim, std::int64_t start,
                std::int64_t length) const;  // [start, start + length) of one dimension
  Tensor contiguous() const;
  Tensor clone() const;  // a copy on memory of its own, contiguous
  Tensor detach()
      const;  // another variable on the same memory, without history and not requiring a gradient
  Tensor to(Device device)
      const;  // the same numbers there, contiguous; this tensor itself if it is there

  // --- Autograd
  // -------------------------------------------------------------------------------------------------------------------

  bool requires_grad() const;  // of a leaf: as set; of an op's result: whether any input did
  bool is_leaf() const;        // made by the user, not by an op
  Tensor& set_requires_grad(bool value);  // leaves of floating type only

  // The accumulated gradient: undefined until a backward pass reached this leaf.
  const Tensor& grad() const;
  // Makes `grad` (same shape and dtype, contiguous; a view into a bucket as well) the place where
  // gradients of this leaf are added up. Whatever it holds counts as accumulated already. An
  // undefined tensor drops the gradient.
  void set_grad(Tensor grad) const;
  // Drops the gradient, or sets it to zeros where it lies (buckets).
  void zero_grad(bool set_to_none = true) const;

  // Calls `hook` once per backward pass that reaches this leaf, after its last use is accumulated.
  // Hooks run in the order of their registration, on the thread of backward(). Returns an id for
  // remove_hook.
  int register_post_accumulate_grad_hook(PostAccumulateGradHook hook) const;
  void remove_hook(int id) const;  // nothing happens if it is not there
  // For results of ops; on a leaf it throws. The hook lives as long as the graph does.
  void register_hook(GradHook hook) const;

  // Lets this leaf look at other memory of the same shape and dtype (a slice of a flat buffer; on
  // whatever device). The numbers are not copied; the gradient, hooks and identity stay. `source`
  // must be contiguous.
  void set_data(const Tensor& source) const;

  const std::shared_ptr<Node>& grad_fn() const;  // nullptr for a leaf

 private:
  friend class AccumulateGrad;  // and what node.hpp and layout.hpp declare:
  friend std::shared_ptr<Node> gradient_edge(const Tensor&);
  friend Tensor make_view(const Tensor&, std::int64_t, Shape, Shape);
  friend void attach(Tensor&, std::shared_ptr<Node>);
  friend bool is_exclusive(const Tensor&);

  struct Impl;
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const;  // throws if undefined

  std::shared_ptr<Impl> impl_;
};

// Whether ops record history on this thread: on by default, and off within backward().
bool grad_enabled();

// While alive, ops on this thread record no history: evaluation, generation, optimizer steps.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

// The reverse, within the reach of a NoGrad.
class EnableGrad {
 public:
  EnableGrad();
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  bool before_;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

}  // namespace ringside::autograd
