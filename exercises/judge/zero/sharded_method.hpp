// A student's method that shards gradients, as the judges call it: data parallelism whose whole
// gradients exist on no rank.
#pragma once

#include "exercises/judge/ddp/data_parallel_method.hpp"
#include "zero/parameter_shards.hpp"

namespace ringside::exercises {

class ShardedMethod : public DataParallel {
 public:
  virtual void finish_shards() = 0;
  // Lives during one backward of a step that has more.
  virtual std::shared_ptr<void> micro_batch() = 0;
  virtual std::size_t buckets_in_memory() const = 0;
  // Then collects the gradients: parameter.grad() is whole on every rank.
  void finish() override {
    finish_shards();
    give_whole_gradients();
  }

 protected:
  ShardedMethod(const autograd::Module& module, collectives::ProcessGroup& group)
      : module_(module), group_(group) {}
  virtual void visit_gradients(const zero::SeeTensor& see) const = 0;

 private:
  void give_whole_gradients() const;

  const autograd::Module& module_;
  collectives::ProcessGroup& group_;
};

using MakeShardedMethod = std::unique_ptr<ShardedMethod>(const autograd::Module&,
                                                         collectives::ProcessGroup&,
                                                         double bucket_mb);

// The student's class as a ShardedMethod, for bind.cpp.
template <class Method>
std::unique_ptr<ShardedMethod> make_sharded_method(const autograd::Module& module,
                                                   collectives::ProcessGroup& group,
                                                   double bucket_mb) {
  struct Adapter final : ShardedMethod {
    Adapter(const autograd::Module& its_module, collectives::ProcessGroup& its_group,
            double its_bucket_mb)
        : ShardedMethod(its_module, its_group), method(its_module, its_group, its_bucket_mb) {}
    void finish_shards() override { method.finish(); }
    std::shared_ptr<void> micro_batch() override {
      using MicroBatch = decltype(method.no_sync());
      return std::shared_ptr<MicroBatch>(new MicroBatch(method.no_sync()));
    }
    std::size_t buckets_in_memory() const override { return method.gradients().in_memory(); }
    void visit_gradients(const zero::SeeTensor& see) const override { method.visit_gradients(see); }
    Method method;
  };
  return std::make_unique<Adapter>(module, group, bucket_mb);
}

}  // namespace ringside::exercises
