// What the judge calls: the student's stage 3 around a module.
#pragma once

#include "autograd/nn/module.hpp"
#include "exercises/judge/student.hpp"
#include "zero/flat_shard_optimizer.hpp"

namespace ringside::exercises {

class FullySharded {
 public:
  virtual ~FullySharded() = default;
  virtual void finish() = 0;
  virtual std::unique_ptr<zero::ShardedOptimizer> make_optimizer(
      std::vector<autograd::ParameterGroup> groups, zero::ShardedOptimizer::Make make) = 0;
  virtual std::vector<std::string> in_memory() const = 0;
  virtual void visit_parameters(const zero::SeeTensor& see) const = 0;
  virtual void visit_gradients(const zero::SeeTensor& see) const = 0;
};

inline Student<std::unique_ptr<FullySharded>(autograd::Module&, collectives::ProcessGroup&)>
    student_stage3;

}  // namespace ringside::exercises
