// Lists, and names that were mistyped, in words for messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ringside {

// "a", "a and b", "a, b and c".
std::string enumerate(const std::vector<std::string>& parts);

// " (did you mean all_reduce?)" for "allreduce" or "all_reudce", to follow a name that does not
// exist. Nothing if none of the names is near it.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names);

// "rank 3", "ranks 0 and 2", "ranks 0 to 5 and 8". `ranks` is ascending and not empty.
std::string ranks_in_words(const std::vector<int>& ranks);

// One word of a shell's command line, quoted where it needs to be.
std::string for_shell(const std::string& word);

}  // namespace ringside
