#include "cli/commands/train/unchanged_checkpoint.hpp"

#include <cstdio>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/warn.hpp"
#include "transformer/checkpoint/checkpoint.hpp"

namespace ringside::cli {

void require_unchanged(const std::filesystem::path& checkpoint, bool accept_changes,
                       const std::vector<std::string>& more) {
  const std::string changes = transformer::changes_of_checkpoint(checkpoint, more);
  if (changes.empty()) return;
  const std::string what =
      fmt::format("the checkpoint in {} was changed or damaged after it was saved ({})",
                  checkpoint.string(), changes);
  require(accept_changes, "{}: restore it, or use it as it is with --accept-changes", what);
  warn("{}: used as it is", what);
}

}  // namespace ringside::cli
