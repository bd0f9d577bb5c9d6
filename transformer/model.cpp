#include "transformer/model.hpp"

#include <cmath>
#include <string>
#include <string_view>

#include "autograd/engine/checkpointing.hpp"
#include "autograd/kernels/copy.hpp"
#include "base/error.hpp"

namespace ringside::transformer {

using autograd::DType;
using autograd::Tensor;

namespace {

const Config& validated(const Config& config) {
  validate(config);
  return config;
}

}  // namespace

Model::Trunk::Blocks::Blocks(const Config& config, DType dtype) {
  for (std::int64_t i = 0; i < config.layers; ++i) {
    blocks.push_back(std::make_unique<Block>(config, dtype));
    register_module(std::to_string(i), *blocks.back());
  }
}

Model::Trunk::Trunk(const Config& config, DType dtype)
    : embed_tokens(config.vocabulary, config.d_model, {}, dtype),
      layers(config, dtype),
      norm(config.d_model, config.norm_epsilon, dtype) {
  register_module("embed_tokens", embed_tokens);
  register_module("layers", layers);
  register_module("norm", norm);
}

Model::Model(const Config& config, DType dtype, autograd::Device device)
    : config_(validated(config)),
      dtype_(dtype),
      model_(config, dtype),
      lm_head_(config.d_model, config.vocabulary, false, {}, dtype),
      rope_table_(autograd::rope_table(config.sequence, config.head_size(), config.rope_theta,
                                       autograd::compute_dtype(dtype))) {
  register_module("model", model_);
  register_module("lm_head", lm_head_);
  if (config.tied_head) lm_head_.weight = model_.embed_tokens.weight;
  initialise(*this, config);
  if (device == autograd::Device::cpu) return;
  to(device);
  rope_table_ = {rope_table_.cos.to(device), rope_table_.sin.to(device)};
}

Tensor Model::hidden(const Tensor& tokens, std::vector<Past>* past) const {
  const std::int64_t room = config_.sequence - (past == nullptr ? 0 : past->front().seen);
  require(tokens.dim() == 2 && tokens.size(1) >= 1 && tokens.size(1) <= room,
          "the model reads tokens of shape [sequences, 1 to {}], but got {}", room,
          autograd::to_string(tokens.shape()));
  Tensor x = model_.embed_tokens.forward(tokens);
  for (std::size_t i = 0; i < model_.layers.blocks.size(); ++i) {
    const Block& block = *model_.layers.blocks[i];
    if (checkpoint_activations_ && past == nullptr)
      x = autograd::checkpoint(
          [this, &block](const Tensor& input) { return block.forward(input, rope_table_); }, x);
    else
      x = block.forward(x, rope_table_, past == nullptr ? nullptr : &(*past)[i]);
  }
  return model_.norm.forward(x);
}

std::vector<Past> Model::empty_past(std::int64_t sequences) const {
  std::vector<Past> past;
  const autograd::Shape shape{sequences, config_.kv_heads, config_.sequence, config_.head_size()};
  for (std::int64_t i = 0; i < config_.layers; ++i)
    past.push_back(
        {Tensor::empty(shape, dtype_, device()), Tensor::empty(shape, dtype_, device()), 0});
  return past;
}

Tensor Model::head(const Tensor& hidden) const {
  return lm_head_.forward(hidden);
}

Tensor Model::forward(const Tensor& tokens) const {
  return head(hidden(tokens));
}

Tensor Model::loss(const Tensor& tokens, const Tensor& targets) const {
  return head_loss(hidden(tokens), targets);
}

Tensor Model::head_loss(const Tensor& hidden, const Tensor& targets) const {
  return lm_head_.cross_entropy(hidden, targets);
}

void initialise(const autograd::Module& model, const Config& config) {
  for (const auto& [name, tensor] : model.named_parameters()) {
    const bool is_norm = tensor.dim() == 1;
    if (is_norm) {
      tensor.fill_(1);
      continue;
    }
    const bool is_table =
        name.find("embed_tokens") != std::string::npos || name.find("lm_head") != std::string::npos;
    const bool ends_branch =
        name.find("o_proj") != std::string::npos || name.find("down_proj") != std::string::npos;
    double deviation =
        is_table ? 0.02 : std::sqrt(2.0 / static_cast<double>(tensor.size(0) + tensor.size(1)));
    if (ends_branch) deviation /= std::sqrt(2.0 * static_cast<double>(config.layers));
    autograd::fill_normal(tensor, 0, deviation, {config.initialise_seed, name});
  }
}

}  // namespace ringside::transformer
