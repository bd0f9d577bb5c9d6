// cross_entropy on a GPU: a block for each row of logits. kernels/cpu/cross_entropy.cpp has the
// formulas.
//
//     CrossEntropy           losses; also the gradient, which may overwrite the logits
//     CrossEntropyBackward   the gradient, from saved logits and logarithms of sums
//     Total (sums.hpp)       the sum of all losses: one block, in fp64
//
// One pass over a row finds its maximum and the sum of exp(x - maximum). When a thread meets a
// larger number, it scales down what it has summed so far (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018). The gradient takes a second pass. A row that fits is
// copied to shared memory first, so that both passes read it there: an H200 has room for 57,000
// fp32 logits. The gradient of a longer row reads it again from global memory.
//
// Bytes per fp32 logit: 4 read and 4 written; 4 more read in a row that does not fit.
#pragma once

#include <limits>

#include "autograd/kernels/block/tiles.hpp"

namespace ringside::autograd::cuda {

// The class of each row. A row whose target is ignore_index has loss 0 and gradient 0.
struct Targets {
  const std::int32_t* targets;
  std::int64_t vocabulary;
  std::int32_t ignore_index;

  constexpr bool ignored(std::int64_t row) const { return targets[row] == ignore_index; }
  constexpr bool valid(std::int64_t row) const {
    return targets[row] >= 0 && targets[row] < vocabulary;
  }
};

// One row of the gradient: (exp(z - log_sum) - [v == target]) weight, or zeros if the target is
// ignored. `gradient` may be z.
template <class S, class G, Block B>
constexpr void cross_entropy_gradient(B& block, const S* z, G* gradient, const Targets& targets,
                                      std::int64_t row, float log_sum, float weight, bool packs) {
  using Step = Narrower<S, G>;
  const bool counts = !targets.ignored(row), whole = targets.vocabulary % Pack<Step>::size == 0;
  for_each<Step>(block, targets.vocabulary, packs && whole, [&](std::int64_t i, auto width) {
    Floats<width.value> dz{};
    if (counts) {
      dz = load_floats<width.value>(z + i);
      for (int k = 0; k < width.value; ++k)
        dz.at[k] =
            B::exp(dz.at[k] - log_sum) * weight - (i + k == targets.targets[row] ? weight : 0.0f);
    }
    store_floats<width.value>(gradient + i, dz);
  });
}

// logits z [rows, V] -> losses [rows]: log sum exp(z) - z[target], or 0 if the target is ignored.
// Also writes log_sums [rows] and gradient [rows, V], if they are not nullptr. If G is S, gradient
// may be the logits. A target outside of the vocabulary makes the loss NaN and reads nothing
// outside of the row. A block takes every count()-th row.
template <class S, class G>
struct CrossEntropy {
  static constexpr int threads = 512;
  const S* logits;
  Targets targets;
  float *losses, *log_sums;
  G* gradient;
  std::int64_t rows;
  float weight;        // of the gradient
  bool packs;          // fits_packs(V, logits), and gradient
  bool row_in_shared;  // row_bytes() of shared memory are there

  constexpr std::int64_t blocks() const { return rows; }
  constexpr std::size_t row_bytes() const {
    return (static_cast<std::size_t>(targets.vocabulary) + 2 * Pack<S>::size) * sizeof(S);
  }
  constexpr std::size_t shared_bytes() const { return row_in_shared ? row_bytes() : 0; }

  template <TileBlock B>
  constexpr void operator()(B& block) const {
    for (std::int64_t row = block.index(); row < rows; row += block.count()) {
      const S* const z = logits + row * targets.vocabulary;
      // Two calls, so that the compiler knows of each where its row is.
      row_in_shared ? take_row(block, row, copy_to_shared(block, z)) : take_row(block, row, z);
    }
  }

 private:
  template <Block B>
  constexpr void take_row(B& block, std::int64_t row, const S* z) const {
    const bool counts = !targets.ignored(row);
    // Read before the barriers in log_sum_exp: after them other threads may overwrite it with the
    // gradient.
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

  // Returns the copy. It is as far from a boundary of 16 bytes as the row is, so that all but the
  // first and the last elements can be copied in packs.
  template <TileBlock B>
  constexpr const S* copy_to_shared(B& block, const S* row) const {
    constexpr std::int64_t size = Pack<S>::size;
    const std::int64_t n = targets.vocabulary,
                       lead = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(row) %
                                                        sizeof(Pack<S>) / sizeof(S)),
                       before = lead == 0         ? 0
                                : size - lead < n ? size - lead
                                                  : n,
                       whole = (n - before) / size * size;
    S* const into = reinterpret_cast<S*>(block.shared()) + lead;
    block.sync();  // no thread reads the previous row any more
    for (std::int64_t i = block.thread() * size; i < whole; i += block.threads() * size)
      block.copy_async(into + before + i, row + before + i);
    for (std::int64_t i = block.thread(); i < n - whole; i += block.threads()) {
      const std::int64_t at = i < before ? i : i + whole;
      into[at] = row[at];
    }
    block.commit_copies();
    block.wait_copies(0);
    block.sync();  // the row is there
    return into;
  }

  template <Block B>
  constexpr float log_sum_exp(B& block, const S* z) const {
    // Starts at lowest(), not -infinity: a masked logit is -infinity, and the difference of two
    // infinities is NaN.
    float largest = std::numeric_limits<float>::lowest(), total = 0;
    for_each<S>(block, targets.vocabulary, packs, [&](std::int64_t i, auto width) {
      const auto zi = load_floats<width.value>(z + i);
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

// logits, log_sums and dloss, the gradient of the loss -> gradient = (softmax(z) - [v == target])
// dloss factor. `gradient` may be the logits.
template <class S, class G>
struct CrossEntropyBackward {
  static constexpr int threads = 512;
  const S* logits;
  Targets targets;
  const float *log_sums, *dloss;  // dloss: one number on the device, or nullptr for 1
  G* gradient;
  std::int64_t rows;
  float factor;
  bool packs;

  constexpr std::int64_t blocks() const { return rows; }

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
