#include "transformer/memory.hpp"

#include <algorithm>

namespace ringside::transformer {
namespace {

// The sizes as doubles, in the letters of layers.hpp.
struct Sizes {
  explicit Sizes(const Config& config)
      : vocabulary(static_cast<double>(config.vocabulary)),
        d(static_cast<double>(config.d_model)),
        f(static_cast<double>(config.d_ff)),
        kv(static_cast<double>(config.kv_heads * config.head_size())),
        heads(static_cast<double>(config.heads)),
        layers(static_cast<double>(config.layers)),
        tied(config.tied_head) {}

  double block() const { return 2 * d * d + 2 * kv * d + 3 * d * f + 2 * d; }
  double root() const { return (tied ? 1 : 2) * vocabulary * d + d; }  // all but the blocks
  double parameters() const { return layers * block() + root(); }

  // What a block keeps of each token for backward: its input, the two normed, q, k, v, what attention says, the sum before the second norm;
  // gate, up and their product; and a number per head and norm.
  double kept_by_block() const { return 6 * d + 2 * kv + 3 * f + heads + 2; }

  // What is there only while backward is in a block: gradients of the stream, and of gate, up and their product.
  double of_backward_in_block() const { return 3 * d + 3 * f; }

  double vocabulary, d, f, kv, heads, layers;
  bool tied;
};

}  // namespace

double parameter_bytes(const Config& config, autograd::DType dtype) {
  return Sizes(config).parameters() * static_cast<double>(autograd::size_of(dtype));
}

MemoryNeed memory_needed(const Config& config, const TrainerOptions& options, autograd::DType dtype, int ranks, const Held& held) {
  const Sizes sizes(config);
  const double size = static_cast<double>(autograd::size_of(dtype)), parameters = parameter_bytes(config, dtype);
  const double tokens = static_cast<double>(options.batch) * static_cast<double>(options.sequence) / ranks / static_cast<double>(options.accumulate);
  const double at_the_head = 2 * sizes.vocabulary + 3 * sizes.d;  // logits and their gradient; around the last norm
  const double kept = sizes.kept_by_block(), in_block = sizes.of_backward_in_block();
  // What is kept in bf16 is widened while it is computed with: the most, the gradient of the logits.
  const double widened = dtype == autograd::DType::bf16 ? tokens * sizes.vocabulary * 4 : 0;
  // Of bf16 parameters the optimizer keeps masters, and all that it keeps is fp32.
  const double wide = dtype == autograd::DType::bf16 ? 2 * parameters : parameters, masters = dtype == autograd::DType::bf16 ? wide : 0;
  const double of_token = options.checkpoint_activations ? sizes.layers * sizes.d + std::max(at_the_head, kept + in_block)
                                                         : sizes.layers * kept + std::max(at_the_head, in_block);
  const double units = held.whole_units ? (sizes.root() + sizes.block()) * size : 0;
  return {.parameters = parameters * held.parameters + units,
          .gradients = parameters * held.gradients + units + std::min(held.buckets_on_the_way, parameters),
          .optimizer = held.optimizer * (masters + (options.optimizer == OptimizerKind::adamw ? 2 * wide : 0)),
          .activations = tokens * of_token * size + widened,
          .at_first = parameters};
}

}  // namespace ringside::transformer
