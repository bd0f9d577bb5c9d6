// An algorithm by the name of its function: "ring_all_reduce" stands for all_reduce with
// --algorithm ring.
#pragma once

#include <string>

#include <fmt/format.h>

#include "collectives/algorithms/catalogue.hpp"

namespace ringside::cli {

// Where `collective` is such a name and no algorithm is given, divides it into both.
inline void divide_algorithm_name(std::string& collective, std::string& algorithm) {
  if (!algorithm.empty()) return;
  for (const collectives::Algorithm& each : collectives::all_algorithms()) {
    const std::string name(name_of(each.collective));
    if (collective != fmt::format("{}_{}", each.name, name)) continue;
    algorithm = each.name;
    collective = name;
    return;
  }
}

}  // namespace ringside::cli
