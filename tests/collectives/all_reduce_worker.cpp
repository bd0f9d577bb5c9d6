// A rank for the tests of failures: it joins the job that its environment names, prints "ready",
// and repeats all-reduces of COUNT floats until it is killed, or a call fails, or a sum is wrong.
//
//   all_reduce_worker COUNT [tcp|shm]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/process_group.hpp"

int main(int argc, char** argv) {
  try {
    using ringside::collectives::ProcessGroup;
    const bool shm = argc > 2 && std::string_view(argv[2]) == "shm";
    const auto rank_info = ringside::collectives::rank_info_from_environment();
    auto group = ProcessGroup::over(shm ? "shm" : "tcp", rank_info);
    std::vector<float> x(argc > 1 ? static_cast<std::size_t>(std::atoll(argv[1])) : 1);
    group.barrier();
    std::printf("ready\n");
    std::fflush(stdout);
    const int p = group.size();
    const auto right = static_cast<float>(p * (p + 1) / 2);
    for (;;) {
      std::fill(x.begin(), x.end(), static_cast<float>(group.rank() + 1));
      group.all_reduce(std::span(x));
      ringside::require(std::count(x.begin(), x.end(), right) == std::ssize(x), "a wrong sum");
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
