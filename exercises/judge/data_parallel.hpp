// What the judges of data parallelism share: nets, data and a training, with the student's method
// and by a single process.
//
// Every rank has other rows and other first weights, and trains by SGD for 4 steps in fp64: Adam
// would hide a wrong scale, and some mistakes show only in the third step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autograd/nn/layers.hpp"
#include "exercises/judge/judge.hpp"
#include "parallel/gradient_hooks.hpp"

namespace ringside::exercises {

// A method of data parallelism, as judges use it.
class DataParallel {
 public:
  virtual ~DataParallel() = default;
  virtual void finish() = 0;
  virtual std::unique_ptr<parallel::Paused> no_sync() { fail("this method has no no_sync()"); }
};

using MakeDataParallel = std::unique_ptr<DataParallel>(const autograd::Module&,
                                                       collectives::ProcessGroup&);

// The student's class as a DataParallel, for bind.cpp.
template <class Method>
std::unique_ptr<DataParallel> make_data_parallel(const autograd::Module& module,
                                                 collectives::ProcessGroup& group) {
  struct Adapter final : DataParallel {
    Adapter(const autograd::Module& its_module, collectives::ProcessGroup& its_group)
        : method(its_module, its_group) {}
    void finish() override { method.finish(); }
    std::unique_ptr<parallel::Paused> no_sync() override {
      if constexpr (requires { method.no_sync(); })
        return std::unique_ptr<parallel::Paused>(new parallel::Paused(method.no_sync()));
      else
        return DataParallel::no_sync();
    }
    Method method;
  };
  return std::make_unique<Adapter>(module, group);
}

// What is special about a net.
enum class NetKind { plain, tied, frozen_and_unused, sometimes };
inline constexpr NetKind all_net_kinds[] = {NetKind::plain, NetKind::tied,
                                            NetKind::frozen_and_unused, NetKind::sometimes};
std::string name_of(NetKind kind);  // "tied"

// Four layers, whose widths depend on the seed. `tied`: second and third share a weight.
// `frozen_and_unused`: one bias, which the seed chooses, is frozen, and forward does not use the
// layer `unused`. `sometimes`: forward uses `third` every second time. The first weights and the
// buffer `shift` depend on `rank`.
class JudgeNet final : public autograd::Module {
 public:
  JudgeNet(NetKind kind, std::uint64_t seed, int rank);
  autograd::Tensor forward(const autograd::Tensor& x) const;
  // The loss over rows first .. first + rows of the data set of `seed`.
  autograd::Tensor loss(std::uint64_t seed, std::int64_t first, std::int64_t rows) const;

 private:
  NetKind kind_;
  autograd::Linear first_, second_, third_, unused_, out_;
  autograd::Tensor shift_;
  mutable int calls_ = 0;
};

// Three layers 0, 1, 2 of 8 x 8 with a bias, for the order of events.
class LayeredNet final : public autograd::Module {
 public:
  static constexpr int depth = 3;
  explicit LayeredNet(std::uint64_t seed);
  autograd::Tensor loss() const;
  std::vector<std::unique_ptr<autograd::Linear>> layers;
};

// Trains every kind of net: {"tied": {"start": tensors, "steps": [{"gradients": tensors,
// "parameters": tensors}]}}, where tensors are {name: numbers}. `micro_batches` > 1: all but the
// last are under no_sync(), and "messages" counts what was sent meanwhile.
Json train_all_kinds(World& world, const Student<MakeDataParallel>& student,
                     int micro_batches = 1);
// Against a single process that has the rows of all ranks.
Verdict judge_training(const Run& run, int micro_batches = 1);

// The calls of 3 steps of every kind of net: {"tied": [[{"label", "bytes"}, ...]], "sent": [[..]]}.
Json calls_of_all_kinds(World& world, const Student<MakeDataParallel>& student);

}  // namespace ringside::exercises
