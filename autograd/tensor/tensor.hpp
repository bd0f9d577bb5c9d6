// Tensor: an array of numbers that remembers how it was computed, so that gradients can flow back.
//
// A Tensor is a handle, as in Python: copies are the same variable (same data, same gradient, same
// history). detach() makes another variable on the same data.
//
//     Tensor --> storage, offset, shape, strides, dtype    where the numbers are
//            --> grad_fn : Node                            the op that computed it; none for a leaf
//            --> grad, hooks                               of leaves that require a gradient
//
// An argument that does not fit throws ringside::Error with what was expected and what was seen. A
// tensor and its graph belong to one thread at a time; different threads may work on different
// graphs without locks.
//
// Some members need more than this room knows. They are declared here and defined in the room that
// has what they need; a heading says where. No header of this room includes one of those rooms.
//
// Reading order of autograd/: storage.hpp, this header, engine/node.hpp, engine/engine.cpp (how
// gradients flow), ops/ops.hpp, one file of ops/ and its loops in kernels/cpu/, nn/module.hpp,
// optim/optimizer.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/ranges.h>  // messages show shapes

#include "autograd/tensor/dtype.hpp"
#include "autograd/tensor/grad_mode.hpp"
#include "autograd/tensor/storage.hpp"

namespace ringside::autograd {

// The size of each dimension; {} is a scalar. Also strides, in elements.
using Shape = std::vector<std::int64_t>;

std::int64_t elements_of(const Shape& shape);  // 1 for {}
std::string to_string(const Shape& shape);     // "[2, 3]"

class Node;            // engine/node.hpp
class AccumulateGrad;  // engine/node.hpp
class Tensor;

// Called with the parameter when its gradient is complete. The hook must not own the parameter:
// that would be a cycle of references.
using PostAccumulateGradHook = std::function<void(const Tensor& parameter)>;
// Called with the gradient of an op's result, when it is complete and before the op's backward
// runs.
using GradHook = std::function<void(const Tensor& grad)>;

// Where the numbers of a tensor are, and how they lie there.
struct Layout {
  std::shared_ptr<Storage> storage;
  std::int64_t offset = 0;  // in elements, from the start of the storage
  Shape shape, strides;
  DType dtype = DType::fp32;
  bool contiguous = true;
  std::int64_t elements = 0;
};

class Tensor {
 public:
  // Undefined: "no gradient", "no bias". Only defined(), is_same() and copies are allowed.
  Tensor() = default;

  // New tensors: contiguous, row-major, on fresh memory, leaves without gradient. On a device other
  // than the CPU the dtype is fp32, bf16 or int32; fp64 throws. The contents of empty() are
  // undefined.
  static Tensor empty(Shape shape, DType dtype = DType::fp32, Device device = Device::cpu);
  static Tensor zeros(Shape shape, DType dtype = DType::fp32, Device device = Device::cpu);
  static Tensor full(Shape shape, double value, DType dtype = DType::fp32,
                     Device device = Device::cpu);
  static Tensor scalar(double value, DType dtype = DType::fp32, Device device = Device::cpu);
  // A copy of `values`, whose type gives the dtype: float, double or std::int32_t.
  template <class T>
  static Tensor from(std::span<const T> values, Shape shape, Device device = Device::cpu);
  template <class T>
  static Tensor from(const std::vector<T>& values, Shape shape, Device device = Device::cpu) {
    return from(std::span<const T>(values), std::move(shape), device);
  }
  template <class T>
  static Tensor from(std::initializer_list<T> values, Shape shape, Device device = Device::cpu) {
    return from(std::span<const T>(values.begin(), values.size()), std::move(shape), device);
  }

  // A contiguous view of `storage` that starts at element `offset`: gradients are views of buckets,
  // and parameters views of flat buffers.
  static Tensor view_of(std::shared_ptr<Storage> storage, std::int64_t offset, Shape shape,
                        DType dtype = DType::fp32);

  bool defined() const { return impl_ != nullptr; }
  // Whether both are the same variable; equal numbers are not enough.
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }

  const Shape& shape() const { return layout().shape; }
  const Shape& strides() const { return layout().strides; }
  std::int64_t dim() const { return static_cast<std::int64_t>(shape().size()); }
  std::int64_t size(std::int64_t d) const;  // of dimension d; d < 0 counts from the end
  std::int64_t elements() const { return layout().elements; }
  DType dtype() const { return layout().dtype; }
  std::int64_t offset() const { return layout().offset; }
  const std::shared_ptr<Storage>& storage() const { return layout().storage; }
  Device device() const { return storage()->device(); }
  bool is_contiguous() const { return layout().contiguous; }

  // The address of the first element, valid while the storage lives. Throws if T is not the dtype,
  // if the storage is dropped, or if the tensor is on another device than the CPU.
  template <class T>
  T* data() const;
  // All elements in order. Throws as data() does, and if the tensor is not contiguous.
  template <class T>
  std::span<T> values() const;
  // The only element of a tensor. On a device it waits until the element is computed.
  double item() const;
  // The address of the first element on any device, for code that passes it on (collectives,
  // kernels) and does not read it. Throws if the storage is dropped.
  std::byte* address() const;

  // Another variable on the same memory, without history; it requires no gradient.
  Tensor detach() const;

  // ---- Copying: kernels/copy.cpp ----

  // Copies the numbers of `source` (same shape and dtype, any strides, any device) into this
  // tensor. No history is recorded.
  void copy_(const Tensor& source) const;
  // Sets all elements of a contiguous tensor.
  void fill_(double value) const;

  // ---- Views and copies, as differentiable ops: ops/view.cpp ----

  // A view if this tensor is contiguous, otherwise a copy. One size may be -1 and is computed.
  Tensor reshape(Shape shape) const;
  // A view with two dimensions exchanged.
  Tensor transpose(std::int64_t dim0, std::int64_t dim1) const;
  // A view of [start, start + length) in dimension `dim`.
  Tensor narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const;
  // This tensor if it is contiguous, otherwise a contiguous copy.
  Tensor contiguous() const;
  // A contiguous copy on fresh memory.
  Tensor clone() const;
  // This tensor if it is on `device`, otherwise a contiguous copy there.
  Tensor to(Device device) const;

  // ---- Gradients: engine/gradients.cpp ----

  bool requires_grad() const;  // of a leaf: as set; of a result: whether any input requires one
  bool is_leaf() const;        // made by the user, not by an op
  Tensor& set_requires_grad(bool value);         // of a leaf of fp32, fp64 or bf16
  const std::shared_ptr<Node>& grad_fn() const;  // nullptr for a leaf

  // The accumulated gradient: undefined until a backward pass reaches this leaf.
  const Tensor& grad() const;
  // Backward passes add the gradients of this leaf to `grad`: same shape and dtype, contiguous; it
  // may be a view of a bucket. The numbers in it count as accumulated. An undefined tensor drops
  // the gradient.
  void set_grad(Tensor grad) const;
  // Lends memory of the same shape and dtype, contiguous: when this leaf gets its next gradient and
  // has none yet, that is where it will be. Ops that write a gradient as a whole compute it there,
  // so it gets into its bucket without zeros, a sum or a copy. An undefined tensor ends the loan.
  void lend_grad_memory(const Tensor& memory) const;
  // Drops the gradient, or fills it with zeros where it is.
  void zero_grad(bool set_to_none = true) const;

  // Calls `hook` once per backward pass that reaches this leaf, after its last use is accumulated.
  // Hooks run in the order of registration, on the thread of backward(). A hook may remove itself.
  // Returns an id for remove_hook.
  int register_post_accumulate_grad_hook(PostAccumulateGradHook hook) const;
  void remove_hook(int id) const;  // does nothing for an unknown id
  // For results of ops; throws for a leaf. The hook lives as long as the graph.
  void register_hook(GradHook hook) const;

  // Points this leaf at the memory of `source`: same shape and dtype, contiguous, on any device (a
  // part of a flat buffer). No numbers are copied. The gradient, hooks and identity stay.
  void set_data(const Tensor& source) const;

 private:
  friend class AccumulateGrad;  // and functions of engine/node.hpp and layout.hpp:
  friend std::shared_ptr<Node> gradient_edge(const Tensor&);
  friend Tensor make_view(const Tensor&, std::int64_t, Shape, Shape);
  friend void attach(Tensor&, std::shared_ptr<Node>);
  friend bool is_exclusive(const Tensor&);

  struct Impl;
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const;      // throws if undefined
  const Layout& layout() const;  // likewise

  std::shared_ptr<Impl> impl_;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

}  // namespace ringside::autograd
