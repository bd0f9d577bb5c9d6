#include "base/text/words.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace ringside {

// Without '-' and '_', in lower case.
static std::string letters_of(std::string_view word) {
  std::string letters;
  for (const unsigned char each : word)
    if (each != '-' && each != '_') letters += static_cast<char>(std::tolower(each));
  return letters;
}

// How many letters to insert, remove, replace or swap with the next to make b of a (Damerau and
// Levenshtein, without two edits of one letter).
static std::size_t edits_between(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> edits(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        edits[i][j] = i + j;
        continue;
      }
      edits[i][j] = std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1,
                              edits[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
    }
  return edits[a.size()][b.size()];
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& names) {
  const std::string letters = letters_of(word);
  std::string nearest;
  std::size_t fewest = letters.size() / 3;  // more than that is another word
  for (const std::string& name : names) {
    const std::size_t edits = edits_between(letters, letters_of(name));
    if (edits > fewest || (edits == fewest && !nearest.empty())) continue;
    fewest = edits;
    nearest = name;
  }
  return nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest);
}

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

std::string for_shell(const std::string& word) {
  constexpr const char* plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace ringside
