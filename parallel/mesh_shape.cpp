#include "parallel/mesh_shape.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/error.hpp"
#include "base/text/coordinates.hpp"
#include "base/text/read_number.hpp"
#include "base/text/words.hpp"
#include "parallel/grid.hpp"

namespace ringside::parallel {

namespace {

// In the order of the enumeration.
constexpr AxisEntry table[] = {
    {Axis::pp, "pp", "pipeline parallel", Divides::layers, "blocks of layers",
     "sends activations on and their gradients back", "none: each rank has parameters of its own"},
    {Axis::dp, "dp", "data parallel", Divides::batch, "sequences of the batch",
     "all-reduce of gradients", "mean"},
    {Axis::fsdp, "fsdp", "data parallel that shards", Divides::batch,
     "sequences of the batch, and shards of the state",
     "all-gather of parameters, reduce-scatter of gradients", "mean, of each rank's shard"},
    {Axis::cp, "cp", "context parallel", Divides::sequence, "tokens of each sequence",
     "keys and values, or heads, between attentions", "mean, with dp or fsdp"},
    {Axis::tp, "tp", "tensor parallel", Divides::matrices, "heads and columns of matrices",
     "all-reduces of activations, two each way in a block",
     "sum, of what is copied: norms, shared heads"},
    {Axis::ep, "ep", "expert parallel", Divides::experts,
     "sequences of the batch, and experts of every block",
     "all-to-alls of tokens, two each way in a block", "mean, but for the experts"},
};

constexpr int largest_size = 1'000'000;  // of an axis, and of the whole mesh

std::optional<Axis> axis_named(std::string_view name) {
  for (const AxisEntry& entry : table)
    if (name == entry.name) return entry.axis;
  return std::nullopt;
}

// "pp (pipeline parallel), dp (data parallel), ... and tp (tensor parallel)"
std::string describe_axes() {
  std::vector<std::string> all;
  for (const AxisEntry& entry : table)
    all.push_back(fmt::format("{} ({})", entry.name, entry.meaning));
  return enumerate(all);
}

// "2" -> 2; nullopt if the text is not a whole number from 1 to `largest_size`.
std::optional<int> size_of(std::string_view text) {
  const auto size = decimal_number<int>(text);
  return size >= 1 && size <= largest_size ? size : std::nullopt;
}

}  // namespace

std::span<const AxisEntry> all_axes() {
  return table;
}

const AxisEntry& entry_of(Axis axis) {
  return table[static_cast<std::size_t>(axis)];
}

MeshShape::MeshShape(std::string_view text, std::string_view option) {
  std::int64_t ranks = 1;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    begin = end + 1;

    const std::size_t equals = part.find('=');
    require(equals != std::string_view::npos,
            "{0} {1}: expected AXIS=SIZE, got '{2}'; write for example {0} pp=2,dp=2,tp=2", option,
            text, part);
    const std::string_view name = part.substr(0, equals), digits = part.substr(equals + 1);
    const std::optional<Axis> axis = axis_named(name);
    require(axis.has_value(), "{} {}: there is no axis '{}'; the axes are {}", option, text, name,
            describe_axes());
    for (const Extent& earlier : extents_)
      require(earlier.axis != *axis, "{} {}: the axis {} is named twice; name it once", option,
              text, name);
    const std::optional<int> size = size_of(digits);
    require(size.has_value(), "{} {}: expected a size of {} from 1 to {}, got '{}'", option, text,
            name, largest_size, digits);
    ranks *= *size;
    require(ranks <= largest_size, "{} {}: a mesh has at most {} ranks; choose smaller sizes",
            option, text, largest_size);
    extents_.push_back({*axis, *size});
  }
}

MeshShape MeshShape::with(Axis axis, int size) const {
  MeshShape other = *this;
  for (Extent& extent : other.extents_)
    if (extent.axis == axis) {
      extent.size = size;
      return other;
    }
  other.extents_.insert(other.extents_.begin(), {axis, size});
  return other;
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
  const std::size_t i = index(axis);
  return i == 0 ? 1 : extents_[i - 1].size;
}

int MeshShape::size(Divides what) const {
  int product = 1;
  for (const AxisEntry& entry : table)
    if (entry.divides == what) product *= size(entry.axis);
  return product;
}

int MeshShape::stride(Axis axis) const {
  int product = 1;
  for (std::size_t i = index(axis); i > 0 && i < extents_.size(); ++i) product *= extents_[i].size;
  return product;
}

std::vector<Axis> MeshShape::axes() const {
  std::vector<Axis> axes;
  for (const Extent& extent : extents_) axes.push_back(extent.axis);
  return axes;
}

void MeshShape::require_rank(int rank) const {
  require(rank >= 0 && rank < ranks(), "the mesh {} has the ranks 0 to {}, not {}", text(),
          ranks() - 1, rank);
}

int MeshShape::coordinate(int rank, Axis axis) const {
  require_rank(rank);
  return coordinates(sizes(), rank)[index(axis)];
}

std::vector<int> MeshShape::members(int rank, Axis axis) const {
  return parallel::members(sizes(), rank, index(axis));
}

std::vector<int> MeshShape::members(int rank, std::span<const Axis> along) const {
  std::vector<int> members;
  for (int other = 0; other < ranks(); ++other) {
    bool differs = false;  // along another axis
    for (const Axis axis : axes())
      differs = differs || (std::find(along.begin(), along.end(), axis) == along.end() &&
                            coordinate(other, axis) != coordinate(rank, axis));
    if (!differs) members.push_back(other);
  }
  return members;
}

std::vector<int> MeshShape::model_members(int rank) const {
  std::vector<Axis> along;
  for (const AxisEntry& entry : table)
    if (entry.divides_model()) along.push_back(entry.axis);
  return members(rank, along);
}

int MeshShape::data_rank(int rank) const {
  int data = 0;
  for (const AxisEntry& entry : table)
    if (entry.divides_batch()) data = data * size(entry.axis) + coordinate(rank, entry.axis);
  return data;
}

std::string MeshShape::text() const {
  std::string text;
  for (const Extent& extent : extents_)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name_of(extent.axis), extent.size);
  return text.empty() ? "one device" : text;
}

std::string MeshShape::describe(int rank) const {
  require_rank(rank);
  return coordinates_in_words(text(), rank);
}

}  // namespace ringside::parallel
