// A student's method of data parallelism, as the judges call it.
#pragma once

#include <memory>

#include "autograd/nn/module.hpp"
#include "collectives/process_group.hpp"
#include "ddp/gradient_hooks.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

class DataParallel {
 public:
  virtual ~DataParallel() = default;
  virtual void finish() = 0;
  virtual std::unique_ptr<ddp::Paused> no_sync() { fail("this method has no no_sync()"); }
};

using MakeDataParallel = std::unique_ptr<DataParallel>(const autograd::Module&,
                                                       collectives::ProcessGroup&);

// The student's class as a DataParallel, for bind.cpp. `options` are further arguments of its
// constructor.
template <class Method, class... Options>
std::unique_ptr<DataParallel> make_data_parallel(const autograd::Module& module,
                                                 collectives::ProcessGroup& group,
                                                 Options... options) {
  struct Adapter final : DataParallel {
    Adapter(const autograd::Module& its_module, collectives::ProcessGroup& its_group,
            Options... its_options)
        : method(its_module, its_group, its_options...) {}
    void finish() override { method.finish(); }
    std::unique_ptr<ddp::Paused> no_sync() override {
      if constexpr (requires { method.no_sync(); })
        return std::unique_ptr<ddp::Paused>(new ddp::Paused(method.no_sync()));
      else
        return DataParallel::no_sync();
    }
    Method method;
  };
  return std::make_unique<Adapter>(module, group, options...);
}

}  // namespace ringside::exercises
