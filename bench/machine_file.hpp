// `ringside bench --calibrate --machine FILE`: this machine as a file for simulations.
#pragma once

#include <string>

#include "cli/pictures/json_file.hpp"
#include "collectives/process_group.hpp"

namespace ringside::cli {

// A file as `account --machine` reads it (python/ringside/planning/machine.py), of ranks with one
// thread each: products by width, the cost of a kernel and the rate of updates, measured while all
// ranks of `world` do the same; and messages that take `alpha` seconds and `beta` for each byte
// over `transport`. Every rank must call it.
Json machine_file(collectives::ProcessGroup& world, const std::string& transport, double alpha,
                  double beta);

}  // namespace ringside::cli
