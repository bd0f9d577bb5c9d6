// Module: a piece of a model; a tree of names for its parameters.
//
//     struct Mlp : Module {
//       Linear up{8, 32}, down{32, 8};
//       Mlp() { register_module("up", up), register_module("down", down); }
//       Tensor forward(const Tensor& x) const { return down.forward(relu(up.forward(x))); }
//     };
//     Mlp{}.named_parameters()   ->   up.weight, up.bias, down.weight, down.bias
//
// What is registered are the members themselves, by address; so to tie two weights, assign one to the other as in torch:
// `head.weight = embedding.weight`. For the same reason a module can be neither copied nor moved.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tensor.hpp"

namespace ringside::autograd {

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Parameters of this module, then of its children, in the order of registration; names are joined by dots. A tensor that is there
  // twice (tied) is listed once, under its first name, unless keep_duplicates. Members left undefined (no bias) are skipped.
  // Frozen parameters (requires_grad() == false) are listed like others.
  std::vector<NamedTensor> named_parameters(bool keep_duplicates = false) const;
  std::vector<Tensor> parameters() const;
  std::vector<NamedTensor> named_buffers() const;  // state that is not trained (tables), in the same order

  void zero_grad(bool set_to_none = true) const;
  void set_requires_grad(bool value);  // of all parameters: false freezes this module

 protected:
  // `member` must live in the object that registers it (or be owned by it, as an element of a vector of unique_ptr). A parameter
  // that is defined is made to require a gradient. Throws if the name is empty, holds a dot, or is taken. Register children in the
  // order in which forward uses them: DDP's buckets rely on it for overlap.
  void register_parameter(std::string name, Tensor& member);
  void register_buffer(std::string name, Tensor& member);
  void register_module(std::string name, Module& member);

 private:
  void collect(const std::string& prefix, bool buffers, std::vector<NamedTensor>& into) const;
  void check_name(const std::string& name) const;

  std::vector<std::pair<std::string, Tensor*>> parameters_, buffers_;
  std::vector<std::pair<std::string, Module*>> modules_;
};

}  // namespace ringside::autograd
