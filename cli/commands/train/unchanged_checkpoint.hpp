// --accept-changes: a checkpoint that was changed after it was saved.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ringside::cli {

// Refuses a checkpoint whose files, `more` of its folder too, were changed after it was saved. If
// the user accepts that (--accept-changes), says so and goes on.
void require_unchanged(const std::filesystem::path& checkpoint, bool accept_changes,
                       const std::vector<std::string>& more = {});

}  // namespace ringside::cli
