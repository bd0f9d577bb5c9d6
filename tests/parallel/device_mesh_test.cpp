// Meshes: which ranks stand where, and the groups along each axis.
#include <fmt/format.h>

#include "parallel/device_mesh.hpp"

#include <set>

#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::tests;
using parallel::Axis;
using parallel::DeviceMesh;
using parallel::MeshShape;

namespace {

constexpr Axis every_axis[] = {Axis::pp, Axis::dp, Axis::fsdp, Axis::cp, Axis::tp};

// Meshes of 4 = 2 x 2, 6 = 2 x 3 and 3 x 2, and 8 = 2 x 2 x 2 ranks, and one with an axis of
// size 1.
const std::vector<std::string> meshes{"dp=2,tp=2",      "dp=2,tp=3",      "tp=3,pp=2",
                                      "pp=2,dp=2,tp=2", "pp=1,tp=2,dp=2", "dp=2,fsdp=2,cp=2"};

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string refusal(std::string_view text) {
  return message_of([text] { MeshShape shape(text); });
}

}  // namespace

TEST_CASE("the last axis of a mesh varies fastest") {
  const MeshShape grid("dp=2,tp=3");
  CHECK(grid.ranks() == 6);
  CHECK(grid.size(Axis::dp) == 2);
  CHECK(grid.size(Axis::tp) == 3);
  CHECK(grid.size(Axis::pp) == 1);
  CHECK(grid.members(4, Axis::tp) == std::vector{3, 4, 5});
  CHECK(grid.members(4, Axis::dp) == std::vector{1, 4});
  CHECK(grid.members(4, Axis::pp) == std::vector{4});
  CHECK(grid.coordinate(4, Axis::pp) == 0);
  CHECK(grid.describe(5) == "dp=1,tp=2");
  CHECK(grid.model_members(4) == std::vector{3, 4, 5});

  const MeshShape turned("tp=3,dp=2");  // the order of the text is the order of the ranks
  CHECK(turned.members(4, Axis::tp) == std::vector{0, 2, 4});
  CHECK(turned.members(4, Axis::dp) == std::vector{4, 5});
  CHECK(turned.model_members(4) == std::vector{0, 2, 4});
  CHECK(turned.text() == "tp=3,dp=2");

  const MeshShape cube("pp=2,dp=2,tp=2");
  CHECK(cube.members(5, Axis::pp) == std::vector{1, 5});
  CHECK(cube.members(5, Axis::dp) == std::vector{5, 7});
  CHECK(cube.members(5, Axis::tp) == std::vector{4, 5});
  CHECK(cube.model_members(5) == std::vector{0, 1, 4, 5});
  CHECK(cube.describe(5) == "pp=1,dp=0,tp=1");

  const MeshShape hybrid("fsdp=2,dp=3,cp=2");
  CHECK(hybrid.data_ranks() == 6);
  CHECK(hybrid.size(parallel::Divides::sequence) == 2);
  CHECK(hybrid.data_rank(7) == 1);  // fsdp=1, dp=0: dp counts first, whatever the order of the text
  CHECK(hybrid.data_rank(6) == 1);
  CHECK(hybrid.data_rank(2) == 2);
  CHECK(hybrid.members(7, std::vector{Axis::fsdp, Axis::cp}) == std::vector{0, 1, 6, 7});
  CHECK(hybrid.model_members(7) == std::vector{7});
}

TEST_CASE("the table of axes is in the order of the enumeration, and complete") {
  int index = 0;
  for (const parallel::AxisEntry& entry : parallel::all_axes()) {
    CHECK(static_cast<int>(entry.axis) == index++);
    CHECK(&parallel::entry_of(entry.axis) == &entry);
    CHECK(MeshShape(fmt::format("{}=2", entry.name)).size(entry.axis) == 2);
    CHECK(MeshShape(fmt::format("{}=2", entry.name)).size(entry.divides) == 2);
    CHECK_FALSE(entry.part.empty());
    CHECK_FALSE(entry.calls.empty());
    CHECK_FALSE(entry.gradients.empty());
  }
}

TEST_CASE("no group of a mesh exists twice, and every rank is in one group along each axis") {
  for (const std::string& text : meshes)
    for (const Axis axis : every_axis) {
      CAPTURE(text);
      const MeshShape shape(text);
      std::set<std::vector<int>> groups;
      std::multiset<int> ranks;
      for (int rank = 0; rank < shape.ranks(); ++rank) groups.insert(shape.members(rank, axis));
      for (const auto& group : groups) ranks.insert(group.begin(), group.end());
      CHECK(static_cast<int>(groups.size()) == shape.ranks() / shape.size(axis));
      CHECK(static_cast<int>(ranks.size()) == shape.ranks());
      for (int rank = 0; rank < shape.ranks(); ++rank) {
        CHECK(ranks.count(rank) == 1);
        CHECK(shape.members(rank, axis).at(shape.coordinate(rank, axis)) == rank);
      }
    }
}

TEST_CASE("a mesh that cannot be is refused with a sentence") {
  CHECK(refusal("pp=2,xp=2") ==
        "--mesh pp=2,xp=2: there is no axis 'xp'; the axes are pp (pipeline parallel), dp (data "
        "parallel), fsdp (data parallel that shards), cp (context parallel), tp (tensor parallel) "
        "and ep (expert parallel)");
  CHECK(refusal("tp=2,tp=2") == "--mesh tp=2,tp=2: the axis tp is named twice; name it once");
  CHECK(refusal("tp=0") == "--mesh tp=0: expected a size of tp from 1 to 1000000, got '0'");
  CHECK(refusal("tp=-2") == "--mesh tp=-2: expected a size of tp from 1 to 1000000, got '-2'");
  CHECK(refusal("tp=2x") == "--mesh tp=2x: expected a size of tp from 1 to 1000000, got '2x'");
  CHECK(refusal("tp=") == "--mesh tp=: expected a size of tp from 1 to 1000000, got ''");
  CHECK(refusal("dp=99999999999") ==
        "--mesh dp=99999999999: expected a size of dp from 1 to 1000000, got '99999999999'");
  CHECK(refusal("pp=16384,dp=16384") ==
        "--mesh pp=16384,dp=16384: a mesh has at most 1000000 ranks; choose smaller sizes");
  for (const std::string text : {"", "tp", "tp=2,", "2,2"})
    CHECK(contains(refusal(text), "expected AXIS=SIZE, got '"));
  CHECK(refusal("2") ==
        "--mesh 2: expected AXIS=SIZE, got '2'; write for example --mesh pp=2,dp=2,tp=2");
  CHECK(message_of([] { MeshShape("pp=2,tp=2").require_ranks(6); }) ==
        "--mesh pp=2,tp=2 needs 4 ranks, but there are 6: start 4 ranks (-n 4), or choose sizes "
        "whose product is 6");
  CHECK(message_of([] { MeshShape("pp=2,tp=2").coordinate(4, Axis::tp); }) ==
        "the mesh pp=2,tp=2 has the ranks 0 to 3, not 4");
  collectives::run_threads(3, [](ProcessGroup& world) {
    const std::string text = message_of([&] { DeviceMesh mesh(world, MeshShape("tp=2")); });
    require(contains(text, "--mesh tp=2 needs 2 ranks, but there are 3"), "the text is: {}", text);
  });
}

TEST_CASE("the groups of a mesh hold their members in order") {
  for (const std::string& text : meshes) {
    CAPTURE(text);
    const MeshShape shape(text);
    on_every_transport(shape.ranks(), [&](ProcessGroup& world) {
      DeviceMesh mesh(world, shape);
      const auto must_consist_of = [&](ProcessGroup& group, const std::vector<int>& expected) {
        std::vector<std::int32_t> seen(static_cast<std::size_t>(group.size()));
        const std::int32_t mine = world.rank();
        group.all_gather(std::span<const std::int32_t>(&mine, 1), std::span(seen));
        require(std::vector<int>(seen.begin(), seen.end()) == expected,
                "rank {} is in a group of {} instead of {}", world.rank(), fmt::join(seen, " "),
                fmt::join(expected, " "));
      };
      for (const Axis axis : every_axis) {
        must_consist_of(mesh.group(axis), shape.members(world.rank(), axis));
        require(mesh.group(axis).rank() == mesh.coordinate(axis), "rank {} in the group, not {}",
                mesh.group(axis).rank(), mesh.coordinate(axis));
      }
      must_consist_of(mesh.model_group(), shape.model_members(world.rank()));
      const std::vector<Axis> data{Axis::dp, Axis::fsdp};
      must_consist_of(mesh.group(data), shape.members(world.rank(), data));
      require(&mesh.group(data) == &mesh.group(data), "a group of two axes was made twice");
    });
  }
}

TEST_CASE("an all-reduce along each axis in turn is one over all ranks") {
  for (const std::string& text : meshes) {
    CAPTURE(text);
    const MeshShape shape(text);
    on_every_transport(shape.ranks(), [&](ProcessGroup& world) {
      DeviceMesh mesh(world, shape);
      // Rank r contributes 2^r: the sum shows which ranks are in it, and how often.
      std::vector<std::int32_t> numbers(5, 1 << world.rank());
      for (const Axis axis : every_axis) mesh.group(axis).all_reduce(std::span(numbers));
      for (const std::int32_t number : numbers)
        require(number == (1 << world.size()) - 1, "the sum is {:b}", number);
    });
  }
}
