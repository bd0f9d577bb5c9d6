#include "transformer/recompute_groups.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"

namespace ringside::transformer {

TEST_CASE("recomputation as a text, both ways, and what is wrong with others") {
  for (const std::string text : {"none", "full", "every=4", "nested=8,2"})
    CHECK(text_of(recompute_groups_from(text)) == text);
  CHECK(recompute_groups_from("selective") == RecomputeGroups{});
  CHECK(recompute_groups_from("full") == RecomputeGroups{1});
  CHECK(recompute_groups_from("nested=8,2") == RecomputeGroups{8, 2});
  for (const std::string wrong :
       {"every=0", "every=4x", "nested=4", "nested=4,4", "nested=2,0", "all"})
    CHECK_THROWS_WITH_AS(
        recompute_groups_from(wrong),
        ("expected none, selective, full, every=K for groups of K blocks, or nested=K1,K2 for "
         "groups of K1 with smaller ones of K2 in them; got '" +
         wrong + "'")
            .c_str(),
        Error);
}

}  // namespace ringside::transformer
