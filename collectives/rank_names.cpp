#include "collectives/rank_names.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/text/coordinates.hpp"
#include "base/text/words.hpp"

namespace ringside::collectives {

int RankNames::in_job(int r) const {
  const auto known = static_cast<int>(ranks_of_job_.size());
  return r >= 0 && r < known ? ranks_of_job_[static_cast<std::size_t>(r)] : r;
}

std::string RankNames::operator()(int r) const {
  const std::string at = coordinates_in_words(mesh_, in_job(r));
  return at.empty() ? fmt::format("{}", in_job(r)) : fmt::format("{} ({})", in_job(r), at);
}

std::string RankNames::enumerate(const std::vector<int>& ranks) const {
  std::vector<int> numbers;
  std::vector<std::string> names;
  for (const int r : ranks) {
    numbers.push_back(in_job(r));
    names.push_back((*this)(r));
  }
  std::sort(numbers.begin(), numbers.end());
  if (mesh_.empty()) return ranks_in_words(numbers);
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", ringside::enumerate(names));
}

}  // namespace ringside::collectives
