#include "training/plan/same_options.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text/words.hpp"
#include "collectives/calls/values_of_all_ranks.hpp"
#include "training/plan/options.hpp"

namespace ringside::training {
namespace {

using collectives::ProcessGroup;

// One line for each option: its value. The names are known.
std::string text_of(const Options& options) {
  std::string text;
  for (const auto& [name, value] : options) text += value + '\n';
  return text;
}

std::vector<std::string> values_of(std::string_view text, std::size_t count) {
  std::vector<std::string> values;
  for (std::size_t begin = 0; values.size() < count;) {
    const std::size_t end = text.find('\n', begin);
    require(end != text.npos,
            "a rank has fewer options: the ranks run different versions of "
            "ringside. Install the same one on every host");
    values.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return values;
}

// "--lr is 0.1 on ranks 0 and 2, 0.2 on rank 1"; empty if all values are equal. `values` has one
// for each rank.
std::string difference(const std::string& name, const std::vector<std::string>& values) {
  std::vector<std::pair<std::string, std::vector<int>>> ranks_with;  // in the order of ranks
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    auto found = std::find_if(ranks_with.begin(), ranks_with.end(),
                              [&](const auto& each) { return each.first == values[rank]; });
    if (found == ranks_with.end()) found = ranks_with.insert(found, {values[rank], {}});
    found->second.push_back(static_cast<int>(rank));
  }
  if (ranks_with.size() == 1) return "";
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : ranks_with)
    parts.push_back(fmt::format("{} on {}", value, ranks_in_words(ranks)));
  return fmt::format("{} is {}", name, fmt::join(parts, ", "));
}

}  // namespace

Options shared_options(Plan plan) {
  Options options;
  for (const Option& row : options_of(plan)) {
    if (row.ranks == Ranks::own || row.name.empty()) continue;
    const std::string value = row.compared();
    options.emplace_back(row.flag_name(), value.empty() ? "not given" : value);
  }
  return options;
}

void require_same_options(const Options& mine, ProcessGroup& group) {
  std::vector<std::vector<std::string>> values(mine.size());  // [option][rank]
  for (const std::string& text : collectives::texts_of_all_ranks(group, text_of(mine), "options")) {
    const auto of_rank = values_of(text, mine.size());
    for (std::size_t i = 0; i < mine.size(); ++i) values[i].push_back(of_rank[i]);
  }
  std::vector<std::string> differences;
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (const auto words = difference(mine[i].first, values[i]); !words.empty())
      differences.push_back(words);
  require(differences.empty(),
          "the ranks have different options: {}. Start every rank with the same options",
          fmt::join(differences, "; "));
}

}  // namespace ringside::training
