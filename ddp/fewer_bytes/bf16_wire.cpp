#include "ddp/fewer_bytes/bf16_wire.hpp"

#include "ddp/fewer_bytes/whole_bucket.hpp"
#include "ddp/gradient_errors.hpp"
#include "ddp/replicate.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::ddp {

using autograd::Bf16;
using autograd::DType;
using autograd::Tensor;

Bf16Wire::Bf16Wire(const autograd::Module& module, collectives::ProcessGroup& group)
    : group_(group), bucket_(whole_bucket(module, "bf16_wire")) {
  replicate(module, group);
  const auto count = static_cast<std::size_t>(bucket_.elements);
  for (int r = 0; r < group.size(); ++r) counts_.push_back(group.block_size(count, r));
  begin_ = group.block_begin(count, group.rank());
  const auto own = static_cast<std::int64_t>(counts_[static_cast<std::size_t>(group.rank())]);
  const autograd::MemoryScope scope(autograd::MemoryKind::gradients);
  error_ = Tensor::zeros({bucket_.elements}, bucket_.dtype);
  owner_error_ = Tensor::zeros({own}, bucket_.dtype);
  wire_ = Tensor::empty({bucket_.elements}, DType::bf16);
  received_ = Tensor::empty({own * group.size()}, DType::bf16);
}

// Returns the names of the parameters without a gradient, in whose place zeros are sent.
template <class T>
std::vector<std::string> Bf16Wire::round_gradients() {
  std::vector<std::string> missing;
  for (const BucketEntry& entry : bucket_.entries) {
    const Tensor& parameter = entry.parameter.tensor;
    Bf16* const wire = wire_.data<Bf16>() + entry.begin;
    if (!parameter.grad().defined()) {
      missing.push_back(entry.parameter.name);
      std::fill_n(wire, parameter.elements(), Bf16());
      continue;
    }
    T* const error = error_.data<T>() + entry.begin;
    const T* const gradient = parameter.grad().data<T>();
    for (std::int64_t i = 0; i < parameter.elements(); ++i) {
      const T exact = gradient[i] + error[i];
      wire[i] = Bf16(exact);
      error[i] = exact - static_cast<T>(static_cast<float>(wire[i]));
    }
  }
  return missing;
}

// The ranks' numbers are added in the order of ranks.
template <class T>
void Bf16Wire::average_own_block() {
  const std::int64_t own = owner_error_.elements(), ranks = group_.size();
  const Bf16* const received = received_.data<Bf16>();
  Bf16* const wire = wire_.data<Bf16>() + begin_;
  T* const error = owner_error_.data<T>();
  for (std::int64_t i = 0; i < own; ++i) {
    T sum = 0;
    for (std::int64_t r = 0; r < ranks; ++r)
      sum += static_cast<T>(static_cast<float>(received[r * own + i]));
    const T exact = sum / static_cast<T>(ranks) + error[i];
    wire[i] = Bf16(exact);
    error[i] = exact - static_cast<T>(static_cast<float>(wire[i]));
  }
}

void Bf16Wire::finish() {
  std::vector<std::string> missing;
  autograd::dispatch(bucket_.dtype, "bf16_wire",
                     [&](auto zero) { missing = round_gradients<decltype(zero)>(); });
  if (missing.size() == bucket_.entries.size()) return;
  const std::string label = label_without("gradients in bf16", missing);
  const auto rank = static_cast<std::size_t>(group_.rank());
  const std::vector<std::size_t> from_each(counts_.size(), counts_[rank]);
  const collectives::Buffer wire = buffer_of(wire_, label);
  const collectives::Buffer block(wire_.data<Bf16>() + begin_, counts_[rank], wire.type);
  try {
    group_.all_to_all({wire, counts_}, {buffer_of(received_, label), from_each}, label);
  } catch (const Error& error) {
    rethrow_with_names(error, group_.rank(), missing);
  }
  autograd::dispatch(bucket_.dtype, "bf16_wire",
                     [&](auto zero) { average_own_block<decltype(zero)>(); });
  group_.all_gather(block, {wire, counts_}, label);
  autograd::dispatch(bucket_.dtype, "bf16_wire", [&](auto zero) {
    using T = decltype(zero);
    for (const BucketEntry& entry : bucket_.entries) {
      const Tensor& gradient = entry.parameter.tensor.grad();
      if (!gradient.defined()) continue;
      const Bf16* const mean = wire_.data<Bf16>() + entry.begin;
      T* const out = gradient.data<T>();
      for (std::int64_t i = 0; i < gradient.elements(); ++i)
        out[i] = static_cast<T>(static_cast<float>(mean[i]));
    }
  });
}

}  // namespace ringside::ddp
