// What the judge calls: makes the student's PowerSGD for a module, and a basis.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "autograd/nn/module.hpp"
#include "collectives/process_group.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

class Compression {
 public:
  virtual ~Compression() = default;
  virtual void finish() = 0;
  virtual std::vector<autograd::NamedTensor> errors() const = 0;
};

// `columns` are those of the factors: r.
using MakeCompression = std::unique_ptr<Compression>(const autograd::Module& module,
                                                     collectives::ProcessGroup& group, int columns);

inline Student<MakeCompression> student_power_sgd;
inline Student<std::vector<std::int64_t>(const autograd::Tensor& p)> student_make_orthonormal;

template <class Method>
std::unique_ptr<Compression> make_compression(const autograd::Module& module,
                                              collectives::ProcessGroup& group, int columns) {
  struct Adapter final : Compression {
    Adapter(const autograd::Module& its_module, collectives::ProcessGroup& its_group, int r)
        : method(its_module, its_group, r) {}
    void finish() override { method.finish(); }
    std::vector<autograd::NamedTensor> errors() const override { return method.errors(); }
    Method method;
  };
  return std::make_unique<Adapter>(module, group, columns);
}

}  // namespace ringside::exercises
