#include "exercises/judge/zero/block_net.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "autograd/engine/checkpointing.hpp"
#include "autograd/engine/node.hpp"
#include "autograd/kernels/copy.hpp"
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

DType dtype_of(const BlockNet::Options& options) {
  return options.mixed ? DType::bf16 : DType::fp64;
}

// x in another dtype; backward converts its gradient back.
Tensor as_dtype(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const auto converted = [](const Tensor& from, DType to) {
    const Tensor y = Tensor::empty(from.shape(), to);
    convert_into(y, from);
    return y;
  };
  return record("as_dtype", converted(x.detach(), dtype), {x},
                [converted, from = x.dtype()](const Node&, const Tensor& dy) -> Gradients {
                  return {converted(dy, from)};
                });
}

// random_tensor() in fp32 or fp64.
Tensor random_in(DType dtype, const Shape& shape, std::uint64_t seed, std::uint64_t which) {
  const Tensor tensor = random_tensor(shape, seed, which);
  if (dtype == DType::fp64) return tensor;
  const auto numbers = tensor.values<double>();
  return Tensor::from(std::vector<float>(numbers.begin(), numbers.end()), shape);
}

}  // namespace

BlockNet::Block::Block(std::int64_t width, Init init, DType dtype)
    : inner(width, width, true, init, dtype) {
  register_module("inner", inner);
}

Tensor BlockNet::Block::forward(const Tensor& x) const {
  return with_hooks([&] {
    const Tensor h = inner.forward(x);
    return x +
           as_dtype(silu(as_dtype(h, compute_dtype(h.dtype()))), h.dtype());  // silu has no bf16
  });
}

void BlockNet::List::add(std::unique_ptr<Block> block) {
  blocks.push_back(std::move(block));
  register_module(std::to_string(blocks.size() - 1), *blocks.back());
}

BlockNet::BlockNet(Options options, std::uint64_t seed, int rank)
    : options_(options),
      embed_(vocabulary, options.width, init_of(seed, rank, "embed"), dtype_of(options)),
      norm_(options.width, 1e-5, compute_dtype(dtype_of(options))),
      head_(options.width, vocabulary, false, init_of(seed, rank, "head"), dtype_of(options)) {
  if (options.tied) head_.weight = embed_.weight;
  for (int i = 0; i < options.depth; ++i)
    layers_.add(std::make_unique<Block>(options.width, init_of(seed, rank, std::to_string(i)),
                                        dtype_of(options)));
  register_module("embed", embed_), register_module("layers", layers_);
  register_module("norm", norm_), register_module("head", head_);
}

Tensor BlockNet::loss(std::uint64_t seed, int step, int first, int ranks) const {
  const DType stored = dtype_of(options_), wide = compute_dtype(stored);
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
    const Tensor normed = as_dtype(norm_.forward(as_dtype(x, wide)), stored);
    const Tensor part = mse_loss(as_dtype(head_.forward(normed), wide),
                                 random_in(wide, {tokens, vocabulary}, seed, 1000 + batch)) *
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
