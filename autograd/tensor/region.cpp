#include "autograd/tensor/region.hpp"

#include "autograd/tensor/layout.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

Region Region::all(Shape whole) {
  Shape begin(whole.size(), 0), extent = whole;
  return {std::move(whole), std::move(begin), std::move(extent)};
}

Region Region::range(Shape whole, int dimension, std::int64_t begin, std::int64_t count) {
  const auto d = static_cast<std::size_t>(dimension);
  require(
      dimension >= 0 && d < whole.size() && begin >= 0 && count >= 0 && begin + count <= whole[d],
      "a region of {} elements from {} in dimension {} does not lie in a tensor of shape {}", count,
      begin, dimension, to_string(whole));
  Region region = all(std::move(whole));
  region.begin[d] = begin;
  region.extent[d] = count;
  return region;
}

std::vector<Region::Run> Region::runs() const {
  if (elements() == 0) return {};
  // Dimensions after `inner` are whole, so a run covers them and the extent of `inner`.
  std::size_t inner = whole.empty() ? 0 : whole.size() - 1;
  while (inner > 0 && extent[inner] == whole[inner]) --inner;
  std::int64_t count = 1;
  for (std::size_t d = inner; d < whole.size(); ++d) count *= extent[d];

  const Shape strides = row_major_strides(whole);
  std::vector<Run> all;
  for (std::int64_t in_part = 0; in_part < elements(); in_part += count) {
    std::int64_t in_whole = 0, rest = in_part;
    for (std::size_t d = whole.size(); d-- > 0;) {
      in_whole += (begin[d] + rest % extent[d]) * strides[d];
      rest /= extent[d];
    }
    all.push_back({in_whole, in_part, count});
  }
  return all;
}

Tensor Region::of(const Tensor& whole_tensor) const {
  require(whole_tensor.shape() == whole, "a region of a tensor of shape {} was asked of one of {}",
          to_string(whole), to_string(whole_tensor.shape()));
  std::int64_t offset = whole_tensor.offset();
  for (std::size_t d = 0; d < whole.size(); ++d) offset += begin[d] * whole_tensor.strides()[d];
  return make_view(whole_tensor, offset, extent, whole_tensor.strides());
}

}  // namespace ringside::autograd
