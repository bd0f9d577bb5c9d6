// Lists in words, for messages.
#pragma once

#include <string>
#include <vector>

namespace ringside {

// "a", "a and b", "a, b and c".
std::string enumerate(const std::vector<std::string>& parts);

// "rank 3", "ranks 0 and 2", "ranks 0 to 5 and 8". `ranks` is ascending and not empty.
std::string ranks_in_words(const std::vector<int>& ranks);

}  // namespace ringside
