#include "autograd/tensor/region.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

Tensor counted(const Shape& shape) {
  std::vector<float> numbers(static_cast<std::size_t>(elements_of(shape)));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  return Tensor::from(numbers, shape);
}

}  // namespace

TEST_CASE("a region of rows is one run, a region of columns one for each row") {
  const Region rows = Region::range({4, 6}, 0, 1, 2);
  REQUIRE(rows.runs().size() == 1);
  CHECK(rows.runs()[0].in_whole == 6);
  CHECK(rows.runs()[0].count == 12);

  const Region columns = Region::range({4, 6}, 1, 2, 3);
  REQUIRE(columns.runs().size() == 4);
  CHECK(columns.runs()[2].in_whole == 2 * 6 + 2);
  CHECK(columns.runs()[2].in_part == 2 * 3);
  CHECK(columns.runs()[2].count == 3);
  CHECK(Region::all({}).runs().size() == 1);
  CHECK(Region::range({4, 6}, 0, 4, 0).runs().empty());
}

TEST_CASE("a region's runs are its elements in any number of dimensions") {
  const Region box{{3, 4, 5}, {1, 0, 2}, {2, 3, 2}};
  const Tensor whole = counted(box.whole), part = box.of(whole).clone();
  CHECK(part.shape() == box.extent);
  std::int64_t covered = 0;
  for (const auto& [in_whole, in_part, count] : box.runs()) {
    CHECK(in_part == covered);
    for (std::int64_t i = 0; i < count; ++i)
      CHECK(part.data<float>()[in_part + i] == whole.data<float>()[in_whole + i]);
    covered += count;
  }
  CHECK(covered == box.elements());
}

TEST_CASE("regions that cover a tensor copy it out and in again") {
  const Shape shape{3, 7};
  const Tensor whole = counted(shape), again = Tensor::zeros(shape);
  for (const auto& [begin, count] : {std::pair(0, 3), std::pair(3, 2), std::pair(5, 2)}) {
    const Region region = Region::range(shape, 1, begin, count);
    const Tensor part = Tensor::empty(region.extent);
    part.copy_(region.of(whole));
    region.of(again).copy_(part);
  }
  for (std::int64_t i = 0; i < 21; ++i) CHECK(again.data<float>()[i] == whole.data<float>()[i]);
}

TEST_CASE("a region outside of its tensor is refused") {
  CHECK_THROWS_WITH_AS(
      Region::range({4, 6}, 1, 4, 3),
      "a region of 3 elements from 4 in dimension 1 does not lie in a tensor of shape [4, 6]",
      Error);
  CHECK_THROWS_WITH_AS(Region::all({2, 3}).of(counted({3, 2})),
                       "a region of a tensor of shape [2, 3] was asked of one of [3, 2]", Error);
}
