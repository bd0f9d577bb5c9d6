#include "parallel/mesh_shape.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>

#include "base/error.hpp"
#include "parallel/grid.hpp"

namespace ringside::parallel {

namespace {

constexpr std::array all_axes{Axis::pp, Axis::dp, Axis::tp};
constexpr int largest_size = 16384;  // of an axis, and of the whole mesh

std::optional<Axis> axis_named(std::string_view name) {
  for (const Axis axis : all_axes)
    if (name == name_of(axis)) return axis;
  return std::nullopt;
}

// "2" -> 2; nullopt if the text is not a whole number from 1 to `largest_size`.
std::optional<int> size_of(std::string_view text) {
  int size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || size < 1 || size > largest_size) return std::nullopt;
  return size;
}

}  // namespace

std::string_view name_of(Axis axis) {
  switch (axis) {
    case Axis::pp:
      return "pp";
    case Axis::dp:
      return "dp";
    case Axis::tp:
      return "tp";
  }
  fail("a mesh has no axis number {}", static_cast<int>(axis));
}

MeshShape::MeshShape(std::string_view text) {
  std::int64_t ranks = 1;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    begin = end + 1;

    const std::size_t equals = part.find('=');
    require(equals != std::string_view::npos,
            "--mesh {}: expected AXIS=SIZE, got '{}'; write for example --mesh pp=2,dp=2,tp=2",
            text, part);
    const std::string_view name = part.substr(0, equals), digits = part.substr(equals + 1);
    const std::optional<Axis> axis = axis_named(name);
    require(axis.has_value(),
            "--mesh {}: there is no axis '{}'; the axes are pp (pipeline parallel), dp (data "
            "parallel) and tp (tensor parallel)",
            text, name);
    for (const Extent& earlier : extents_)
      require(earlier.axis != *axis, "--mesh {}: the axis {} is named twice; name it once", text,
              name);
    const std::optional<int> size = size_of(digits);
    require(size.has_value(), "--mesh {}: expected a size of {} from 1 to {}, got '{}'", text, name,
            largest_size, digits);
    ranks *= *size;
    require(ranks <= largest_size, "--mesh {}: a mesh has at most {} ranks; choose smaller sizes",
            text, largest_size);
    extents_.push_back({*axis, *size});
  }
}

void MeshShape::require_ranks(int seen) const {
  require(seen == ranks(),
          "--mesh {} needs {} ranks, but there are {}: start {} ranks (-n {}), or choose sizes "
          "whose product is {}",
          text(), ranks(), seen, ranks(), ranks(), seen);
}

int MeshShape::ranks() const {
  int product = 1;
  for (const Extent& extent : extents_) product *= extent.size;
  return product;
}

std::vector<int> MeshShape::sizes() const {
  std::vector<int> sizes{1};
  for (const Extent& extent : extents_) sizes.push_back(extent.size);
  return sizes;
}

std::size_t MeshShape::index(Axis axis) const {
  for (std::size_t i = 0; i < extents_.size(); ++i)
    if (extents_[i].axis == axis) return i + 1;
  return 0;
}

int MeshShape::size(Axis axis) const {
  return sizes()[index(axis)];
}

int MeshShape::coordinate(int rank, Axis axis) const {
  require(rank >= 0 && rank < ranks(), "the mesh {} has the ranks 0 to {}, not {}", text(),
          ranks() - 1, rank);
  return coordinates(sizes(), rank)[index(axis)];
}

std::vector<int> MeshShape::members(int rank, Axis axis) const {
  return parallel::members(sizes(), rank, index(axis));
}

std::vector<int> MeshShape::model_members(int rank) const {
  std::vector<int> members;
  for (int other = 0; other < ranks(); ++other)
    if (coordinate(other, Axis::dp) == coordinate(rank, Axis::dp)) members.push_back(other);
  return members;
}

std::string MeshShape::text() const {
  std::string text;
  for (const Extent& extent : extents_)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name_of(extent.axis), extent.size);
  return text;
}

std::string MeshShape::describe(int rank) const {
  std::string text;
  for (const Extent& extent : extents_)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name_of(extent.axis),
                        coordinate(rank, extent.axis));
  return text;
}

}  // namespace ringside::parallel
