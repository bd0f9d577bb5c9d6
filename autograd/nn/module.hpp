// Module: a part of a model, with its parameters; modules form a tree, which gives them names.
//
//     struct Mlp : Module {
//       Linear up{8, 32}, down{32, 8};
//       Mlp() { register_module("up", up), register_module("down", down); }
//       Tensor forward(const Tensor& x) const { return down.forward(relu(up.forward(x))); }
//     };
//     Mlp{}.named_parameters()   ->   up.weight, up.bias, down.weight, down.bias
//
// The members themselves are registered, by address. So two weights are tied by an assignment, as
// in torch: `head.weight = embedding.weight`. For the same reason a module cannot be copied or
// moved.
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

  // The parameters of this module, then of its children, in the order of registration; dots join
  // the names. A tied tensor is listed once, under its first name, unless keep_duplicates is set.
  // Undefined members (no bias) are left out; frozen parameters (requires_grad() == false) are not.
  // Without `recurse`, only the parameters of this module itself.
  std::vector<NamedTensor> named_parameters(bool keep_duplicates = false,
                                            bool recurse = true) const;
  std::vector<Tensor> parameters() const;
  // Tensors that are not trained (tables), in the same order.
  std::vector<NamedTensor> named_buffers() const;

  // Moves all parameters and buffers to `device`. Parameters stay the same variables and drop their
  // gradients. Call it before optimizers and parallel strategies are made: they read where
  // parameters are.
  void to(Device device) const;

  void zero_grad(bool set_to_none = true) const;
  void set_requires_grad(bool value);  // of all parameters: false freezes this module

  // This module, named "", and all modules below it: parents first, in the order of registration.
  std::vector<NamedModule> named_modules();

  // A forward pre-hook runs before each forward of this module; a forward hook runs after it, with
  // its output. So other code (an inspection, a strategy that fetches parameters when they are
  // needed) follows a model that does not know it. A forward hook may call register_hook on the
  // output; that hook runs before backward enters this module. Hooks run in the order of
  // registration, on the thread of forward. A hook may register and remove hooks, itself included;
  // this takes effect from the next forward. Returns an id for remove_forward_hook. Names as in
  // torch.nn.Module.
  int register_forward_pre_hook(ForwardPreHook hook);
  int register_forward_hook(ForwardHook hook);
  void remove_forward_hook(int id);  // of either kind; does nothing for an unknown id

  // Whether backward through this module reads the values of its parameters. Most modules do, for
  // the gradient of their input.
  virtual bool backward_reads_parameters() const { return true; }

 protected:
  // Runs the hooks around `body`, the computation of a forward:
  //
  //     return with_hooks([&] { return linear(x, weight, bias); });
  template <class Body>
  Tensor with_hooks(Body&& body) const {
    // Copies, because a hook may register or remove hooks.
    const auto before = forward_pre_hooks_;
    for (const auto& [id, hook] : before) hook();
    const Tensor output = body();
    const auto after = forward_hooks_;
    for (const auto& [id, hook] : after) hook(output);
    return output;
  }

  // `member` must be a member of the registering object, or be owned by it (an element of a vector
  // of unique_ptr). A defined parameter is set to require a gradient. Throws Error if the name is
  // empty, contains a dot, or is taken. Register children in the order in which forward uses them:
  // DDP orders its buckets by it, so that communication overlaps with backward.
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
