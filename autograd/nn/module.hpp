// Module: a piece of a model; a tree of names for its parameters.
//
//     struct Mlp : Module {
//       Linear up{8, 32}, down{32, 8};
//       Mlp() { register_module("up", up), register_module("down", down); }
//       Tensor forward(const Tensor& x) const { return down.forward(relu(up.forward(x))); }
//     };
//     Mlp{}.named_parameters()   ->   up.weight, up.bias, down.weight, down.bias
//
// What is registered are the members themselves, by address; so to tie two weights, assign one to
// the other as in torch: `head.weight = embedding.weight`. For the same reason a module can be
// neither copied nor moved.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

class Module;

struct NamedModule {
  std::string name;
  Module* module = nullptr;
};

using ForwardPreHook = std::function<void()>;
using ForwardHook = std::function<void(const Tensor& output)>;

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Parameters of this module, then of its children, in the order of registration; names are joined
  // by dots. A tensor that is there twice (tied) is listed once, under its first name, unless
  // keep_duplicates. Members left undefined (no bias) are skipped. Frozen parameters
  // (requires_grad() == false) are listed like others. Without `recurse`, those of this module
  // alone.
  std::vector<NamedTensor> named_parameters(bool keep_duplicates = false,
                                            bool recurse = true) const;
  std::vector<Tensor> parameters() const;
  std::vector<NamedTensor> named_buffers()
      const;  // state that is not trained (tables), in the same order

  // Moves the numbers of all parameters and buffers there. Parameters stay the same variables, and
  // drop their gradients. Before optimizers and parallel forms are made, which look at where
  // parameters are.
  void to(Device device) const;

  void zero_grad(bool set_to_none = true) const;
  void set_requires_grad(bool value);  // of all parameters: false freezes this module

  // This module, named "", and all below it: parents first, in the order of registration.
  std::vector<NamedModule> named_modules();

  // Called before each forward of this module, and after it with what it returned: how something
  // from outside (an inspection, a form that fetches parameters when they are needed) listens to a
  // model that knows nothing of it. A hook may ask the output for a hook of its own,
  // Tensor::register_hook, which then runs before backward enters this module. They run in the
  // order of their registration, on the thread of forward, and return an id for
  // remove_forward_hook. Source of the names: torch.nn.Module.
  int register_forward_pre_hook(ForwardPreHook hook);
  int register_forward_hook(ForwardHook hook);
  void remove_forward_hook(int id);  // of either kind; nothing happens if it is not there

  // Whether backward through this module reads its parameters' numbers. Most do, for the gradient
  // of their input.
  virtual bool backward_reads_parameters() const { return true; }

 protected:
  // How a module's forward lets itself be listened to: `return with_hooks([&] { return linear(x,
  // weight, bias); });`
  template <class Body>
  Tensor with_hooks(Body&& body) const {
    for (const auto& [id, hook] : forward_pre_hooks_) hook();
    const Tensor output = body();
    for (const auto& [id, hook] : forward_hooks_) hook(output);
    return output;
  }

  // `member` must live in the object that registers it (or be owned by it, as an element of a
  // vector of unique_ptr). A parameter that is defined is made to require a gradient. Throws if the
  // name is empty, holds a dot, or is taken. Register children in the order in which forward uses
  // them: DDP's buckets rely on it for overlap.
  void register_parameter(std::string name, Tensor& member);
  void register_buffer(std::string name, Tensor& member);
  void register_module(std::string name, Module& member);

 private:
  void collect(const std::string& prefix, bool buffers, bool recurse,
               std::vector<NamedTensor>& into) const;
  void collect_modules(const std::string& name, std::vector<NamedModule>& into);
  void check_name(const std::string& name) const;

  std::vector<std::pair<std::string, Tensor*>> parameters_, buffers_;
  std::vector<std::pair<std::string, Module*>> modules_;
  std::vector<std::pair<int, ForwardPreHook>> forward_pre_hooks_;
  std::vector<std::pair<int, ForwardHook>> forward_hooks_;
  int last_hook_ = 0;
};

}  // namespace ringside::autograd
