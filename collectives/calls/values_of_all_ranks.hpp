// A value from every rank, for what ranks tell each other beside the data of a call.
#pragma once

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

}  // namespace ringside::collectives
