// cross_entropy on a GPU: a block for each row of logits. The formulas are those of
// ops/cross_entropy.cpp.
//
//     forward    reads a row twice (the second time from cache, if it has less than some ten thousand numbers) and may write the gradient in its place
//     backward   from the saved logarithms, for logits that were kept
//     the sum    of all losses is Total's (square_sums.hpp): one block, in fp64
//
// The largest number of a row and the sum of exp(x - largest) are found in one pass: where a thread
// meets a larger number, what it has added up so far is scaled down (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018).
//
// Bytes per logit in fp32: 4 read and 4 written, and 4 that are read again. Some 40 registers, no
// shared memory.
#pragma once

#include <limits>

#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

// What of a row's targets counts.
struct Targets {
  const std::int32_t* targets;
  std::int64_t vocabulary;
  std::int32_t ignore_index;

  constexpr bool ignored(std::int64_t row) const { return targets[row] == ignore_index; }
  constexpr bool valid(std::int64_t row) const {
    return targets[row] >= 0 && targets[row] < vocabulary;
  }
};

// One row: (exp(z - log_sum) - [v == target]) weight, which may go where z is; zeros where the
// target does not count.
template <class S, class G, Block B>
constexpr void cross_entropy_gradient(B& block, const S* z, G* gradient, const Targets& targets,
                                      std::int64_t row, float log_sum, float weight, bool packs) {
  using Step = Narrower<S, G>;
  const bool counts = !targets.ignored(row), whole = targets.vocabulary % Pack<Step>::size == 0;
  for_each<Step>(block, targets.vocabulary, packs && whole, [&](std::int64_t i, auto width) {
    Lanes<width.value> dz{};
    if (counts) {
      dz = widened<width.value>(z + i);
      for (int k = 0; k < width.value; ++k)
        dz.at[k] =
            B::exp(dz.at[k] - log_sum) * weight - (i + k == targets.targets[row] ? weight : 0.0f);
    }
    narrow_into<width.value>(gradient + i, dz);
  });
}

// logits z [rows, V] -> losses [rows]: log sum exp(z) - z[target], 0 where the target does not
// count. And, where they are not nullptr, log_sums [rows], and gradient [rows, V], which may be the
// logits' own place if G is S. A target that is no token makes the loss NaN, and nothing beside the
// row is read for it. A block takes every count()-th row.
template <class S, class G>
struct CrossEntropy {
  static constexpr int threads = 512;
  const S* logits;
  Targets targets;
  float *losses, *log_sums;
  G* gradient;
  std::int64_t rows;
  float weight;  // of the gradient
  bool packs;    // in_packs(V, logits), and of gradient

  constexpr std::int64_t blocks() const { return rows; }
  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    for (std::int64_t row = block.index(); row < rows; row += block.count()) {
      const S* const z = logits + row * targets.vocabulary;
      const bool counts = !targets.ignored(row);
      // Read before anybody may write the gradient there, which is after the meetings below.
      const float chosen = targets.valid(row) ? static_cast<float>(z[targets.targets[row]])
                                              : std::numeric_limits<float>::quiet_NaN();
      const float log_sum = counts ? log_sum_exp(block, z) : 0.0f;
      if (block.thread() == 0) {
        losses[row] = counts ? log_sum - chosen : 0.0f;
        if (log_sums) log_sums[row] = log_sum;
      }
      if (gradient)
        cross_entropy_gradient(block, z, gradient + row * targets.vocabulary, targets, row, log_sum,
                               weight, packs);
    }
  }

 private:
  template <Block B>
  constexpr float log_sum_exp(B& block, const S* z) const {
    float largest = std::numeric_limits<float>::lowest(),
          total = 0;  // not -infinity, from which -infinity could not be subtracted
    for_each<S>(block, targets.vocabulary, packs, [&](std::int64_t i, auto width) {
      const auto zi = widened<width.value>(z + i);
      float now = largest;
      for (int k = 0; k < width.value; ++k) now = now < zi.at[k] ? zi.at[k] : now;
      if (largest < now) total *= B::exp(largest - now);
      largest = now;
      for (int k = 0; k < width.value; ++k) total += B::exp(zi.at[k] - largest);
    });
    const float of_all = block.max(largest);
    return of_all + B::log(block.sum(total * B::exp(largest - of_all)));
  }
};

// logits, log_sums, and the gradient of the loss on the device -> gradient = (softmax - [v ==
// target]) dloss factor. May go where the logits are.
template <class S, class G>
struct CrossEntropyBackward {
  static constexpr int threads = 512;
  const S* logits;
  Targets targets;
  const float *log_sums, *dloss;  // dloss: one number, or nullptr for 1
  G* gradient;
  std::int64_t rows;
  float factor;
  bool packs;

  constexpr std::int64_t blocks() const { return rows; }
  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    const float weight = (dloss ? *dloss : 1.0f) * factor;
    for (std::int64_t row = block.index(); row < rows; row += block.count())
      cross_entropy_gradient(block, logits + row * targets.vocabulary,
                             gradient + row * targets.vocabulary, targets, row, log_sums[row],
                             weight, packs);
  }
};

}  // namespace ringside::autograd::cuda
