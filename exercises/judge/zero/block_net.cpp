#include "exercises/judge/zero/block_net.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "autograd/engine/checkpointing.hpp"
#include "autograd/ops/ops.hpp"
#include "base/random.hpp"
#include "exercises/judge/autograd/tensors.hpp"

namespace ringside::exercises {

using namespace autograd;

namespace {

constexpr std::int64_t vocabulary = 11, tokens = 4;  // of a rank in a step

Init init_of(std::uint64_t seed, int rank, std::string_view name) {
  return {seed + static_cast<std::uint64_t>(rank), name};
}

}  // namespace

BlockNet::Block::Block(std::int64_t width, Init init)
    : inner(width, width, true, init, DType::fp64) {
  register_module("inner", inner);
}

Tensor BlockNet::Block::forward(const Tensor& x) const {
  return with_hooks([&] { return x + silu(inner.forward(x)); });
}

void BlockNet::List::add(std::unique_ptr<Block> block) {
  blocks.push_back(std::move(block));
  register_module(std::to_string(blocks.size() - 1), *blocks.back());
}

BlockNet::BlockNet(Options options, std::uint64_t seed, int rank)
    : options_(options),
      embed_(vocabulary, options.width, init_of(seed, rank, "embed"), DType::fp64),
      norm_(options.width, 1e-5, DType::fp64),
      head_(options.width, vocabulary, false, init_of(seed, rank, "head"), DType::fp64) {
  if (options.tied) head_.weight = embed_.weight;
  for (int i = 0; i < options.depth; ++i)
    layers_.add(std::make_unique<Block>(options.width, init_of(seed, rank, std::to_string(i))));
  register_module("embed", embed_), register_module("layers", layers_);
  register_module("norm", norm_), register_module("head", head_);
}

Tensor BlockNet::loss(std::uint64_t seed, int step, int first, int ranks) const {
  Tensor total;
  for (int rank = first; rank < first + ranks; ++rank) {
    const std::uint64_t batch = static_cast<std::uint64_t>(100 * step + rank);
    std::vector<std::int32_t> ids(tokens);
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<std::int32_t>(random_below(vocabulary, seed, 200 + batch, i));
    Tensor x = embed_.forward(Tensor::from(ids, {tokens}));
    for (const auto& block : layers_.blocks)
      x = options_.recompute
              ? checkpoint([&](const Tensor& input) { return block->forward(input); }, x)
              : block->forward(x);
    const Tensor part = mse_loss(head_.forward(norm_.forward(x)),
                                 random_tensor({tokens, vocabulary}, seed, 1000 + batch)) *
                        (1.0 / ranks);
    total = total.defined() ? total + part : part;
  }
  return total;
}

bool BlockNet::is_layer(const std::string& name) const {
  return name == "embed" || name == "norm" || name == "head" ||
         (name.starts_with("layers.") && name.find('.', 7) == std::string::npos);
}

std::int64_t BlockNet::parameter_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [name, parameter] : named_parameters()) bytes += 8 * parameter.elements();
  return bytes;
}

std::int64_t BlockNet::largest_unit_bytes() const {
  const std::int64_t width = options_.width;
  return 8 * std::max(vocabulary * width + width, width * width + width);  // the root, or a block
}

std::vector<std::string> BlockNet::units_in_memory() const {
  std::vector<std::string> units;
  const auto look_at = [&](const std::string& unit, const Module& module) {
    for (const auto& [name, parameter] : module.named_parameters())
      if (parameter.storage()->data() != nullptr) {
        units.push_back(unit);
        return;
      }
  };
  look_at("root", norm_);
  for (std::size_t i = layers_.blocks.size(); i-- > 0;)
    look_at(fmt::format("layers.{}", i), *layers_.blocks[i]);
  if (!options_.tied) look_at("embed", embed_);
  return units;
}

}  // namespace ringside::exercises
