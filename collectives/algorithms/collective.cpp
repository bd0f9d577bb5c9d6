#include "collectives/algorithms/collective.hpp"

#include <iterator>

#include "base/error.hpp"

namespace ringside::collectives {

namespace {

struct Description {
  std::string_view name, promise;
  bool has_root = false, reduces = false, has_blocks = false;
};

// In the order of the enumeration: name, promise, has_root, reduces, has_blocks.
constexpr Description descriptions[] = {
    {"all_reduce", "every rank holds the sum of all ranks", false, true},
    {"reduce_scatter", "rank r holds chunk r of the sum", false, true, true},
    {"all_gather", "rank c's chunk c is on every rank", false, false, true},
    {"broadcast", "every rank holds what the root held", true},
    {"reduce", "the root holds the sum of all ranks", true, true},
    {"barrier", "every rank has heard from every rank"},
    {"gather", "rank c's chunk c is on the root", true, false, true},
    {"scatter", "rank r holds the root's chunk r", true, false, true},
    {"all_to_all", "rank r's chunk c is rank c's chunk r", false, false, true},
    {"send", "the receiver holds what the sender held"},
};

const Description& description_of(Collective collective) {
  const auto number = static_cast<std::size_t>(collective);
  require(number < std::size(descriptions), "there is no collective with the number {}", number);
  return descriptions[number];
}

}  // namespace

std::string_view name_of(Collective collective) {
  return description_of(collective).name;
}
std::string_view promise_of(Collective collective) {
  return description_of(collective).promise;
}
bool has_root(Collective collective) {
  return description_of(collective).has_root;
}
bool reduces(Collective collective) {
  return description_of(collective).reduces;
}
bool has_blocks(Collective collective) {
  return description_of(collective).has_blocks;
}
bool names_chunks(Collective collective) {
  return collective == Collective::all_to_all;
}

}  // namespace ringside::collectives
