// -n, --backend, --link and --algorithm of the commands that run on several ranks
// (launcher/ranks.hpp).
#pragma once

#include <string>
#include <vector>

#include "cli/launcher/ranks.hpp"
#include "cli/options/cli11_names.hpp"
#include "cli/options/option_checks.hpp"

namespace ringside::cli {

// Declares -n,--ranks.
void add_ranks_option(const Options& option, RanksOption& ranks);

// Declares --backend, for one backend or for several separated by commas.
void add_backend_option(const Options& option, std::string& backend);
void add_backends_option(const Options& option, std::vector<std::string>& backends);

// Declares --link RATE,LATENCY: an emulated link behind which every later group of this process and
// of its ranks communicates (collectives/transport/link.hpp). RINGSIDE_LINK in the environment
// carries it to the ranks.
void add_link_option(const Options& option);

// Declares --algorithm NAME,...: the algorithms that every later group of this process and of its
// ranks takes (collectives/selection/algorithm_selection.hpp). RINGSIDE_ALGORITHM in the
// environment carries them to the ranks.
void add_algorithm_option(const Options& option);

}  // namespace ringside::cli
