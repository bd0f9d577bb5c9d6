// A vocabulary that is divided over the threads of one test: the ops of ops/vocabulary.hpp without
// a process group.
#pragma once

#include <algorithm>
#include <barrier>
#include <functional>
#include <thread>
#include <vector>

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/ops/vocabulary.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::tests {

using namespace autograd;

// The part of rank r when `whole` rows are divided over `ranks`: the first ranks have one row more.
struct Rows {
  std::int64_t first, count;
};
inline Rows rows_of_rank(std::int64_t whole, int ranks, int r) {
  const std::int64_t each = whole / ranks, more = whole % ranks;
  return {r * each + std::min<std::int64_t>(r, more), each + (r < more ? 1 : 0)};
}

// Where the threads meet. Numbers are combined in the order of ranks, so all get the same bits.
class MeetingTable {
 public:
  explicit MeetingTable(int ranks) : barrier_(ranks), given_(static_cast<std::size_t>(ranks)) {}

  void join(int rank, const Tensor& numbers, bool maximum) {
    given_[static_cast<std::size_t>(rank)] = numbers.clone();
    barrier_.arrive_and_wait();
    dispatch(numbers.dtype(), "join", [&](auto zero) {
      using T = decltype(zero);
      for (std::int64_t i = 0; i < numbers.elements(); ++i) {
        T joined = given_[0].template data<T>()[i];
        for (std::size_t r = 1; r < given_.size(); ++r) {
          const T next = given_[r].template data<T>()[i];
          joined = maximum ? std::max(joined, next) : joined + next;
        }
        numbers.data<T>()[i] = joined;
      }
    });
    barrier_.arrive_and_wait();
  }

 private:
  std::barrier<> barrier_;
  std::vector<Tensor> given_;
};

class ThreadStatistics final : public RowStatistics {
 public:
  ThreadStatistics(MeetingTable& table, int rank) : table_(table), rank_(rank) {}
  void max_over_ranks(const Tensor& numbers) const override {
    calls.push_back(numbers.shape());
    table_.join(rank_, numbers, true);
  }
  void sum_over_ranks(const Tensor& numbers) const override {
    calls.push_back(numbers.shape());
    table_.join(rank_, numbers, false);
  }
  mutable std::vector<Shape> calls;  // the shapes that were joined

 private:
  MeetingTable& table_;
  int rank_;
};

// What one rank computes of linear_cross_entropy, with the gradients of loss * 0.5 if `learns`.
struct RankLoss {
  Tensor loss, dx, dw;
  std::vector<Shape> calls;
};
struct DividedLoss {
  Tensor x, w, targets;  // of the whole vocabulary, on the CPU
  std::int32_t ignore_index = -100;
  std::int64_t rows_at_once = 0;
  Device device = Device::cpu;
  bool learns = true;

  // Runs `loss_of(x, w)` on fresh copies, and backward.
  template <class LossOf>
  RankLoss run(const Tensor& weight, const LossOf& loss_of) const {
    Tensor own_x = x.to(device).clone(), own_w = weight.to(device).clone();
    own_x.set_requires_grad(learns), own_w.set_requires_grad(learns);
    const Tensor loss = loss_of(own_x, own_w);
    if (learns) backward(loss * 0.5);
    return {loss.detach(), own_x.grad(), own_w.grad(), {}};
  }

  RankLoss whole() const {
    return run(w, [&](const Tensor& own_x, const Tensor& own_w) {
      return linear_cross_entropy(own_x, own_w, targets, ignore_index, rows_at_once);
    });
  }

  // [rank]
  std::vector<RankLoss> divided(int ranks) const {
    MeetingTable table(ranks);
    std::vector<RankLoss> results(static_cast<std::size_t>(ranks));
    std::vector<Tensor> weights;
    for (int r = 0; r < ranks; ++r) {
      const Rows part = rows_of_rank(w.size(0), ranks, r);
      weights.push_back(w.narrow(0, part.first, part.count).clone());
    }
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        const auto rank = static_cast<std::size_t>(r);
        const VocabularyRange range{rows_of_rank(w.size(0), ranks, r).first, w.size(0)};
        const ThreadStatistics statistics(table, r);
        results[rank] = run(weights[rank], [&](const Tensor& own_x, const Tensor& own_w) {
          return linear_cross_entropy(own_x, own_w, targets, range, statistics, ignore_index,
                                      rows_at_once);
        });
        results[rank].calls = statistics.calls;
      });
    for (std::thread& thread : threads) thread.join();
    return results;
  }
};

}  // namespace ringside::tests
