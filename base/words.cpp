#include "base/words.hpp"

#include <fmt/format.h>

namespace ringside {

std::string enumerate(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

std::string ranks_in_words(const std::vector<int>& ranks) {
  std::vector<std::string> runs;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - begin <= 2) end = begin + 1;  // "0 and 1" reads better than "0 to 1"
    runs.push_back(end - begin == 1 ? fmt::to_string(ranks[begin])
                                    : fmt::format("{} to {}", ranks[begin], ranks[end - 1]));
    begin = end;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + enumerate(runs);
}

}  // namespace ringside
