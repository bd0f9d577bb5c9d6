#include "transformer/model.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "autograd/engine/checkpointing.hpp"
#include "autograd/kernels/copy.hpp"
#include "autograd/ops/ops.hpp"
#include "base/error.hpp"
#include "transformer/parameter_table.hpp"

namespace ringside::transformer {

using autograd::DType;
using autograd::Tensor;

namespace {

const Config& validated(const Config& config) {
  validate(config);
  return config;
}

const ModelRanks not_divided;

}  // namespace

Model::Model(const Config& config, DType dtype, autograd::Device device, const ModelPart& part,
             const ModelRanks* ranks)
    : config_(validated(config)),
      dtype_(dtype),
      part_(part),
      ranks_(ranks == nullptr ? not_divided : *ranks),
      rope_table_(autograd::rope_table(config.sequence, rope_frequencies(config),
                                       autograd::compute_dtype(dtype))) {
  validate(part_, config_);
  require(ranks_.rank() == part_.tensor_rank && ranks_.size() == part_.tensor_ranks,
          "a part of rank {} of {} cannot be divided as rank {} of {}", part_.tensor_rank,
          part_.tensor_ranks, ranks_.rank(), ranks_.size());
  require(ranks_.expert_rank() == part_.expert_rank && ranks_.expert_ranks() == part_.expert_ranks,
          "a part with the experts of rank {} of {} cannot be divided as rank {} of {}",
          part_.expert_rank, part_.expert_ranks, ranks_.expert_rank(), ranks_.expert_ranks());
  make_parameters();
  initialise();
  if (device == autograd::Device::cpu) return;
  to(device);
  rope_table_ = {rope_table_.cos.to(device), rope_table_.sin.to(device)};
}

// Makes and registers the parameters of this part, under their names in the whole model.
void Model::make_parameters() {
  const ParameterTable table(config_);
  const autograd::Region region =
      table.entry(embedding_name).region(part_.tensor_rank, part_.tensor_ranks);
  const std::int64_t rows = region.extent[0];
  vocabulary_ = {region.begin[0], region.whole[0]};
  if (part_.embedding) {
    model_.embed_tokens.emplace(rows, config_.d_model, autograd::Init{}, dtype_);
    model_.register_module("embed_tokens", *model_.embed_tokens);
  }
  for (const std::int64_t layer : part_.layers_of(config_)) {
    Block& block =
        *model_.layers.blocks.emplace_back(std::make_unique<Block>(config_, dtype_, ranks_));
    model_.layers.register_module(std::to_string(layer), block);
  }
  model_.register_module("layers", model_.layers);
  if (part_.head) {
    model_.norm.emplace(config_.d_model, config_.norm_epsilon, dtype_);
    model_.register_module("norm", *model_.norm);
  }
  register_module("model", model_);
  if (!part_.head) return;
  lm_head_.emplace(config_.d_model, rows, false, autograd::Init{}, dtype_);
  register_module("lm_head", *lm_head_);
  if (config_.tied_head && part_.embedding) lm_head_->weight = model_.embed_tokens->weight;
}

// Norms are ones. The others are normal with mean 0 and the deviation of the table.
void Model::initialise() const {
  const ParameterTable table(config_);
  for (const auto& [name, tensor] : named_parameters()) {
    const ParameterEntry& entry = table.entry(name);
    if (entry.is_norm()) {
      tensor.fill_(1);
      continue;
    }
    const autograd::Region region = entry.region(part_.tensor_rank, part_.tensor_ranks);
    for (const auto& [in_whole, in_part, count] : region.runs())
      autograd::fill_normal(
          Tensor::view_of(tensor.storage(), tensor.offset() + in_part, {count}, dtype_), 0,
          entry.deviation, {config_.initialise_seed, entry.name}, in_whole);
  }
}

void Model::add_balance_loss(std::int64_t micro_batches) {
  for (const auto& block : model_.layers.blocks)
    if (block->block_sparse_moe)
      block->block_sparse_moe->set_loss_share(1 / static_cast<double>(micro_batches));
}

std::vector<std::int64_t> Model::take_choices() {
  std::vector<std::int64_t> sum(static_cast<std::size_t>(config_.experts));
  for (const auto& block : model_.layers.blocks) {
    if (!block->block_sparse_moe) continue;
    const std::vector<std::int64_t> choices = block->block_sparse_moe->take_choices();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += choices[i];
  }
  return sum;
}

// --- Forward

Tensor Model::run_blocks(Tensor x, std::size_t first, std::size_t end,
                         std::vector<KvCache>* caches) const {
  if (recompute_.blocks > 0 && caches == nullptr)
    return run_groups(std::move(x), first, end, recompute_.blocks, recompute_.inner);
  for (std::size_t i = first; i < end; ++i)
    x = model_.layers.blocks[i]->forward(x, rope_table_,
                                         caches == nullptr ? nullptr : &(*caches)[i]);
  return x;
}

// In groups of `size` blocks, each of which backward computes again: if `inner` is not 0, in groups
// of so many, which are computed once more.
Tensor Model::run_groups(Tensor x, std::size_t first, std::size_t end, std::int64_t size,
                         std::int64_t inner) const {
  for (std::size_t begin = first; begin < end; begin += static_cast<std::size_t>(size)) {
    const std::size_t last = std::min(end, begin + static_cast<std::size_t>(size));
    x = autograd::checkpoint(
        [this, begin, last, inner](const Tensor& input) {
          if (inner > 0) return run_groups(input, begin, last, inner, 0);
          Tensor y = input;
          for (std::size_t i = begin; i < last; ++i)
            y = model_.layers.blocks[i]->forward(y, rope_table_);
          return y;
        },
        x);
  }
  return x;
}

Tensor Model::hidden(const Tensor& tokens, std::vector<KvCache>* caches) const {
  require(caches == nullptr || (part_.tensor_ranks == 1 && !ranks_.divides_context()),
          "generation with a KV cache needs a model that is not divided among ranks");
  return model_.with_hooks([&] {
    const std::int64_t cached = caches == nullptr ? 0 : caches->front().length;
    Tensor x = embed_after(tokens, cached);
    return last_norm(model_.layers.with_hooks(
        [&] { return run_blocks(std::move(x), 0, model_.layers.blocks.size(), caches); }));
  });
}

Tensor Model::embed(const Tensor& tokens) const {
  return embed_after(tokens, 0);
}

// `cached` tokens precede these.
Tensor Model::embed_after(const Tensor& tokens, std::int64_t cached) const {
  const std::int64_t room = config_.sequence - cached;
  require(tokens.dim() == 2 && tokens.size(1) >= 1 && tokens.size(1) <= room,
          "the model reads tokens of shape [sequences, 1 to {}], but got {}", room,
          autograd::to_string(tokens.shape()));
  require(part_.embedding, "this part of the model has no embedding");
  const autograd::Embedding& table = *model_.embed_tokens;
  return table.with_hooks([&] { return ranks_.embedding(tokens, table.weight, vocabulary_); });
}

Tensor Model::run_layers(Tensor x, std::int64_t first, std::int64_t end) const {
  const std::vector<std::int64_t> held = part_.layers_of(config_);
  const auto begin = std::lower_bound(held.begin(), held.end(), first);
  require(first < end && held.end() - begin >= end - first && *begin == first &&
              *(begin + (end - first) - 1) == end - 1,
          "layers {} to {} were asked of a part of the model with the layers {}", first, end - 1,
          fmt::join(held, ", "));
  const auto index = static_cast<std::size_t>(begin - held.begin());
  return run_blocks(std::move(x), index, index + static_cast<std::size_t>(end - first), nullptr);
}

Tensor Model::last_norm(const Tensor& x) const {
  require(part_.head, "this part of the model has no last norm and no head");
  return model_.norm->forward(x);
}

std::vector<KvCache> Model::empty_kv_cache(std::int64_t sequences) const {
  std::vector<KvCache> caches;
  const autograd::Shape shape{sequences, config_.kv_heads, config_.sequence, config_.head_size()};
  for (std::int64_t i = 0; i < config_.layers; ++i)
    caches.push_back(
        {Tensor::empty(shape, dtype_, device()), Tensor::empty(shape, dtype_, device()), 0});
  return caches;
}

Tensor Model::head(const Tensor& hidden) const {
  require(part_.head && part_.tensor_ranks == 1,
          "logits need a model whose head is not divided among ranks");
  return lm_head_->forward(hidden);
}

Tensor Model::forward(const Tensor& tokens) const {
  return with_hooks([&] { return head(hidden(tokens)); });
}

Tensor Model::loss(const Tensor& tokens, const Tensor& targets) const {
  return with_hooks([&] { return head_loss(hidden(tokens), targets); });
}

Tensor Model::head_loss(const Tensor& hidden, const Tensor& targets) const {
  require(part_.head, "this part of the model has no last norm and no head");
  return lm_head_->with_hooks(
      [&] { return ranks_.cross_entropy(hidden, lm_head_->weight, targets, vocabulary_); });
}

}  // namespace ringside::transformer
