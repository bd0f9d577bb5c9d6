#include "transformer/memory.hpp"

#include <algorithm>

#include "autograd/ops/ops.hpp"

namespace ringside::transformer {
namespace {

// The sizes of a part of a model, as doubles, so that products do not overflow.
struct Sizes {
  explicit Sizes(const Config& config, const ModelPart& part = {}, bool divides_sequence = false)
      : d(static_cast<double>(config.d_model)),
        has_embedding(part.embedding),
        has_head(part.head),
        tied(config.tied_head) {
    const std::int64_t t = part.tensor_ranks;
    vocabulary = static_cast<double>((config.vocabulary + t - 1) / t);
    f = static_cast<double>(config.d_ff / t);
    heads = static_cast<double>(config.heads / t);
    q = heads * static_cast<double>(config.head_size());
    kv = static_cast<double>(std::max<std::int64_t>(1, config.kv_heads / t) * config.head_size());
    layers = static_cast<double>(part.layers.empty() ? static_cast<std::size_t>(config.layers)
                                                     : part.layers.size());
    stream = divides_sequence ? d / static_cast<double>(t) : d;
  }

  double block() const { return 2 * q * d + 2 * kv * d + 3 * d * f + 2 * d; }
  double embedding() const { return has_embedding && !(tied && has_head) ? vocabulary * d : 0; }
  // The last norm and the head. A tied embedding counts here.
  double root() const { return has_head ? vocabulary * d + d : 0; }
  double parameters() const { return layers * block() + embedding() + root(); }
  double largest_parameter() const { return d * std::max({vocabulary, f, q}); }

  // Numbers that a block keeps per token for backward: its input and the sum before the second
  // norm, both in the residual stream; both normed inputs; q and the output of attention, k and v;
  // gate, up and their product; one number per head and per norm.
  double kept_by_block() const { return 2 * stream + 2 * d + 2 * q + 2 * kv + 3 * f + heads + 2; }

  // Numbers that exist only while backward runs through a block, at their peak in the feed-forward
  // part: the gradients of the residual stream and of the product, and then either those of gate
  // and up, whose product has been freed, or that of the down projection's matrix. In a pipeline
  // the gradient that the next stage sent is there, too.
  double of_backward_in_block(double tokens) const {
    return tokens * (d + f) + std::max(tokens * f, f * d) + (has_head ? 0 : tokens * stream);
  }

  // Numbers at the head: rows of logits, three tensors around the last norm, and the gradient of
  // the head's matrix, which forward computes.
  double at_head(double tokens, double rows) const {
    return has_head ? rows * vocabulary + 3 * tokens * d + vocabulary * d : 0;
  }

  // Of these, what is kept until backward: the gradients of the matrix and of the head's input, and
  // the input of the norm.
  double kept_at_head(double tokens) const {
    return has_head ? vocabulary * d + 2 * tokens * d : 0;
  }

  // Numbers when backward has come to the embedding: the gradient of its matrix, and of its output.
  double at_embedding(double tokens) const {
    return has_embedding ? vocabulary * d + 3 * tokens * d : 0;
  }

  double d;
  bool has_embedding, has_head, tied;
  double vocabulary = 0, f = 0, heads = 0, q = 0, kv = 0, layers = 0;  // of this rank
  double stream = 0;  // numbers of the residual stream for each token of the sequence
};

double rows_of_logits(double tokens, const Config& config,
                      autograd::Device device = autograd::Device::cpu) {
  constexpr double beyond_any = 1e15;  // more tokens than any run has; fits in an integer
  return static_cast<double>(autograd::cross_entropy_rows(
      static_cast<std::int64_t>(std::min(tokens, beyond_any)), config.vocabulary, device));
}

// The largest number of activations that exist at one time: when backward begins at the head, in
// the first block that it comes to, or at the embedding, where one micro-batch's blocks are freed.
double peak_activations(const Sizes& sizes, double tokens, double rows, bool checkpointed,
                        const Held& held = {}) {
  const double block = tokens * sizes.kept_by_block(),
               in_block = sizes.of_backward_in_block(tokens),
               kept_by_layer = checkpointed ? tokens * sizes.stream : block;
  const double here = sizes.layers * kept_by_layer;
  const double others =
      (held.micro_batches_kept - 1) * here + (held.heads_kept - 1) * sizes.kept_at_head(tokens);
  return others +
         std::max({here + sizes.at_head(tokens, rows), here + (checkpointed ? block : 0) + in_block,
                   (held.splits_backward ? here : 0) + sizes.at_embedding(tokens)});
}

double bytes_of_buckets(const Sizes& sizes, double size, const Held& held) {
  if (held.bucket_bytes == 0) return 0;
  const double largest = sizes.largest_parameter() * size;
  return largest +
         std::min(std::max(held.bucket_bytes, largest) + held.buckets_under_way * held.bucket_bytes,
                  sizes.parameters() * size);
}

}  // namespace

double parameter_bytes(const Config& config, autograd::DType dtype) {
  return Sizes(config).parameters() * static_cast<double>(autograd::size_of(dtype));
}

MemoryNeed memory_needed(const Config& config, const TrainerOptions& options, autograd::DType dtype,
                         int data_ranks, const Held& held) {
  const Sizes sizes(config, held.part, held.divides_sequence);
  const double size = static_cast<double>(autograd::size_of(dtype)),
               parameters = sizes.parameters() * size;
  const double tokens = static_cast<double>(options.batch) * static_cast<double>(options.sequence) /
                        data_ranks / static_cast<double>(options.accumulate);
  const double rows = rows_of_logits(tokens, config, held.device);
  const bool is_bf16 = dtype == autograd::DType::bf16;
  // What the head needs beyond 2 bytes for each number if it is bf16. The CPU converts values to
  // fp32 while an op computes: the largest such copies are those of the head's matrix, its
  // gradient, and the rows of logits. A device multiplies bf16: its logits are fp32 and their
  // gradient is bf16, and the gradient of the matrix is fp32, with a copy in bf16.
  const double matrix = sizes.vocabulary * sizes.d, logits = rows * sizes.vocabulary;
  const double converted = !is_bf16 || !sizes.has_head            ? 0
                           : held.device == autograd::Device::cpu ? 6 * matrix + 2 * logits
                                                                  : 4 * matrix + 4 * logits;
  // For bf16 parameters the optimizer keeps fp32 masters, and its other state is fp32 too.
  const double fp32_copy = is_bf16 ? 2 * parameters : parameters, masters = is_bf16 ? fp32_copy : 0;
  const double whole = held.whole_units ? size : 0;  // the root is as large as the embedding
  return {.parameters = parameters * held.parameters +
                        whole * (sizes.block() + std::max(sizes.root(), sizes.block())),
          .gradients = parameters * held.gradients +
                       whole * 2 * (std::max(sizes.root(), sizes.block()) + sizes.block()) +
                       bytes_of_buckets(sizes, size, held),
          .optimizer = held.optimizer *
                       (masters + (options.optimizer == OptimizerKind::adamw ? 2 * fp32_copy : 0)),
          .activations =
              peak_activations(sizes, tokens, rows, options.checkpoint_activations, held) * size +
              converted,
          .before_sharding = parameters};
}

MemoryNeed memory_needed_to_evaluate(const Config& config, autograd::DType dtype, double sequences,
                                     double length, bool gradients, double kept_logits,
                                     autograd::Device device) {
  const Sizes sizes(config);
  const double size = static_cast<double>(autograd::size_of(dtype)),
               parameters = parameter_bytes(config, dtype), tokens = sequences * length;
  const double numbers =
      gradients
          ? peak_activations(sizes, tokens, rows_of_logits(tokens, config, device), false)
          : tokens * sizes.kept_by_block() + rows_of_logits(length, config) * sizes.vocabulary;
  return {.parameters = parameters,
          .gradients = gradients ? parameters : 0,
          .activations = (numbers + kept_logits * sizes.vocabulary) * size};
}

MemoryNeed memory_needed_to_generate(const Config& config, autograd::DType dtype, double tokens) {
  const Sizes sizes(config);
  const double seen = std::min(tokens, static_cast<double>(config.sequence));
  const double cache = sizes.layers * 2 * sizes.kv * static_cast<double>(config.sequence);
  return {.parameters = parameter_bytes(config, dtype),
          .activations = (cache + seen * sizes.kept_by_block() + sizes.vocabulary) *
                         static_cast<double>(autograd::size_of(dtype))};
}

}  // namespace ringside::transformer
