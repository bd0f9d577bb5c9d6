// A value or a text from every rank, for what ranks tell each other beside the data of a call.
#pragma once

#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "collectives/process_group.hpp"

namespace ringside::collectives {

// Element r is what rank r has passed: an all_gather of the bytes.
template <class T>
std::vector<T> values_of_all_ranks(ProcessGroup& group, const T& mine, std::string_view label) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(group.size());
  group.all_gather({&mine, sizeof mine, DataType::uint8},
                   {all.data(), sizeof mine * all.size(), DataType::uint8}, label);
  return all;
}

// The same for texts, which may have different lengths.
inline std::vector<std::string> texts_of_all_ranks(ProcessGroup& group, std::string_view mine,
                                                   std::string_view label) {
  const std::vector<std::size_t> lengths = values_of_all_ranks(group, mine.size(), label);
  std::string all(std::reduce(lengths.begin(), lengths.end()), '\0');
  group.all_gather({mine.data(), mine.size(), DataType::uint8},
                   {Buffer(all.data(), all.size(), DataType::uint8), lengths}, label);
  std::vector<std::string> texts;
  for (std::size_t begin = 0; const std::size_t length : lengths) {
    texts.push_back(all.substr(begin, length));
    begin += length;
  }
  return texts;
}

}  // namespace ringside::collectives
