// Compiled with the student's files each time that one of them changes.
#include "exercises/21-fsdp/interface.hpp"
#include "zero3.cpp"

namespace ringside::exercises {
namespace {

struct Adapter final : FullySharded {
  Adapter(autograd::Module& module, collectives::ProcessGroup& group)
      : method(module, group, {}, fp32_shards) {}
  void finish() override { method.finish(); }
  std::unique_ptr<zero::ShardedOptimizer> make_optimizer(
      std::vector<autograd::ParameterGroup> groups, zero::ShardedOptimizer::Make make) override {
    return method.make_optimizer(std::move(groups), std::move(make));
  }
  std::vector<std::string> in_memory() const override { return method.in_memory(); }
  void visit_parameters(const zero::SeeTensor& see) const override { method.visit_parameters(see); }
  void visit_gradients(const zero::SeeTensor& see) const override { method.visit_gradients(see); }
  static constexpr bool fp32_shards = true;  // of bf16 parameters, in the net that has some
  student::zero::Zero3 method;
};

std::unique_ptr<FullySharded> make(autograd::Module& module, collectives::ProcessGroup& group) {
  return std::make_unique<Adapter>(module, group);
}

[[maybe_unused]] const bool bound = student_stage3.bind(make);

}  // namespace
}  // namespace ringside::exercises
