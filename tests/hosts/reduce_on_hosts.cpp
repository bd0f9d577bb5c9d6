// A rank that calls all_reduce so often, on so many floats: reduce_on_hosts CALLS COUNT.
#include <cstdlib>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "collectives/algorithm_files/algorithm_file.hpp"
#include "collectives/process_group.hpp"

int main(int, char** arguments) {
  using namespace ringside;
  collectives::load_algorithms();
  auto group = collectives::ProcessGroup::from_environment();
  const int calls = std::atoi(arguments[1]), count = std::atoi(arguments[2]);
  const float sum = static_cast<float>(group.size() * (group.size() + 1)) / 2;
  for (int call = 0; call < calls; ++call) {
    std::vector<float> data(static_cast<std::size_t>(count), static_cast<float>(group.rank() + 1));
    group.all_reduce(std::span(data));
    for (const float each : data) require(each == sum, "expected the sum {}, got {}", sum, each);
  }
  group.finish();
}
