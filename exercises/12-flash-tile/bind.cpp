// Compiled with the student's file each time that it changes.
#include "attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "exercises/12-flash-tile/interface.hpp"
#include "exercises/judge/autograd/block_in_turn.hpp"

namespace ringside::exercises {
namespace {

namespace written = student::autograd::cuda;

constexpr std::int64_t guard = 64;  // rows of NaN behind each head

// Rows of a tensor [heads, rows, D] with a guard behind each head.
template <class T>
struct Guarded {
  Guarded(const std::vector<double>& values, std::int64_t rows, std::int64_t head_size)
      : head(rows * head_size), stride((rows + guard) * head_size) {
    for (auto value = values.begin(); value != values.end(); value += head) {
      for (std::int64_t i = 0; i < head; ++i) all.push_back(T(static_cast<float>(value[i])));
      all.resize(all.size() + static_cast<std::size_t>(stride - head), T(nan));
    }
  }
  static constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  std::int64_t head, stride;  // elements
  std::vector<T> all;
};

template <class T>
AttentionOutputs outputs(const AttentionRun& run, const AttentionTensors& inputs) {
  const AttentionShape& shape = run.shape;
  const int head_size = static_cast<int>(shape.head_size);
  const Guarded<T> q(inputs.q, shape.queries, head_size), k(inputs.k, shape.keys, head_size),
      v(inputs.v, shape.keys, head_size);
  Guarded<T> y(inputs.q, shape.queries, head_size);
  std::fill(y.all.begin(), y.all.end(), T(Guarded<T>::nan));
  const auto rows = shape.batch * shape.heads * shape.queries;
  std::vector<float> log_sums(static_cast<std::size_t>(rows + guard), Guarded<T>::nan);
  const auto heads_of = [&](auto* data, const Guarded<T>& of, std::int64_t heads) {
    return written::Heads<std::remove_pointer_t<decltype(data)>>{data, heads * of.stride, of.stride,
                                                                 head_size};
  };
  AttentionOutputs seen{};
  written::with_padded_head_size(head_size, [&](auto d) {
    const written::AttentionForward<T, d.value> kernel{
        {shape.batch, shape.heads, shape.kv_heads, shape.queries, shape.keys, head_size},
        1 / std::sqrt(static_cast<float>(head_size)),
        heads_of(q.all.data(), q, shape.heads),
        heads_of(k.all.data(), k, shape.kv_heads),
        heads_of(v.all.data(), v, shape.kv_heads),
        heads_of(y.all.data(), y, shape.heads),
        log_sums.data()};
    seen.syncs =
        launch_in_turn(kernel, kernel.blocks(), {run.threads, run.last_first, run.copies_at_once});
  });
  for (std::size_t i = 0; i < y.all.size(); ++i) {
    const auto value = static_cast<float>(y.all[i]);
    if (static_cast<std::int64_t>(i) % y.stride < y.head)
      seen.y.push_back(value);
    else
      seen.strays += !std::isnan(value);
  }
  seen.log_sums.assign(log_sums.begin(), log_sums.begin() + rows);
  seen.strays += static_cast<int>(std::count_if(log_sums.begin() + rows, log_sums.end(),
                                                [](float x) { return !std::isnan(x); }));
  return seen;
}

AttentionOutputs forward(const AttentionRun& run, const AttentionTensors& inputs) {
  return run.bf16 ? outputs<autograd::Bf16>(run, inputs) : outputs<float>(run, inputs);
}

[[maybe_unused]] const bool bound = student_attention_forward.bind(forward);

}  // namespace
}  // namespace ringside::exercises
