// --elastic and --restarts, of `train` and `launch`: a job whose ranks come and go
// (training/elastic/), which the launcher learns of as its JobMembers.
#pragma once

#include <optional>

#include "cli/launcher/launcher.hpp"
#include "cli/options/cli11_names.hpp"
#include "training/elastic/elastic_sizes.hpp"

namespace ringside::cli {

// --elastic MIN:MAX and --restarts N.
struct ElasticOption {
  std::optional<training::ElasticSizes> sizes;
  std::optional<int> restarts;
};
void add_elastic_options(const Options& option, ElasticOption& elastic);

// Tells the launcher what the options say; with --elastic `ranks` becomes MAX. Throws UsageError if
// -n is another number, and Error if several machines or tasks of srun would start ranks.
void set_elastic(const ElasticOption& elastic, std::optional<int>& ranks, LaunchOptions& launch);

}  // namespace ringside::cli
