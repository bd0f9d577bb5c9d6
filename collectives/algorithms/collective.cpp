#include "collectives/algorithms/collective.hpp"

#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/words.hpp"

namespace ringside::collectives {

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_gather:
      return "all_gather";
    case Collective::broadcast:
      return "broadcast";
    case Collective::reduce:
      return "reduce";
    case Collective::barrier:
      return "barrier";
    case Collective::gather:
      return "gather";
    case Collective::scatter:
      return "scatter";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::point_to_point:
      return "send";
  }
  fail("there is no collective with the number {}", static_cast<int>(collective));
}

std::string_view promise_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "every rank holds the sum of all ranks";
    case Collective::reduce_scatter:
      return "rank r holds chunk r of the sum";
    case Collective::all_gather:
      return "rank c's chunk c is on every rank";
    case Collective::broadcast:
      return "every rank holds what the root held";
    case Collective::reduce:
      return "the root holds the sum of all ranks";
    case Collective::barrier:
      return "every rank has heard from every rank";
    case Collective::gather:
      return "rank c's chunk c is on the root";
    case Collective::scatter:
      return "rank r holds the root's chunk r";
    case Collective::all_to_all:
      return "rank r's chunk c is rank c's chunk r";
    case Collective::point_to_point:
      return "the receiver holds what the sender held";
  }
  fail("there is no collective with the number {}", static_cast<int>(collective));
}

bool has_root(Collective collective) {
  using enum Collective;
  return collective == broadcast || collective == reduce || collective == gather ||
         collective == scatter;
}

bool reduces(Collective collective) {
  using enum Collective;
  return collective == all_reduce || collective == reduce_scatter || collective == reduce;
}

bool names_chunks(Collective collective) {
  return collective == Collective::all_to_all;
}

Collective collective_named(std::string_view name) {
  std::vector<std::string> names;
  for (const Collective collective : all_collectives) {
    if (name_of(collective) == name) return collective;
    names.emplace_back(name_of(collective));
  }
  fail("there is no collective named '{}'{}; there are {}", name, did_you_mean(name, names),
       fmt::join(names, ", "));
}

}  // namespace ringside::collectives
