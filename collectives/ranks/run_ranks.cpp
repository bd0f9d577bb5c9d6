#include "collectives/ranks/run_ranks.hpp"

#include <cstdio>
#include <string_view>

#include "base/text/read_number.hpp"
#include "collectives/ranks/run_threads.hpp"

namespace ringside::collectives {

int run_ranks(int count, const char* const* arguments,
              const std::function<void(ProcessGroup& group, const RankPrinter& print)>& body) try {
  int threads = 0;
  bool as_it_comes = false;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = arguments[i];
    const int number = decimal_number<int>(word).value_or(0);
    if (word == "--threads") {
      threads = 4;
    } else if (word == "--as-it-comes") {
      as_it_comes = true;
    } else if (threads > 0 && number > 0) {
      threads = number;
    } else {
      fmt::print(stderr,
                 "{0}: does not know '{1}'. Four ranks, as processes and as threads:\n"
                 "  ringside launch -n 4 -- {0}\n"
                 "  {0} --threads 4\n"
                 "With --as-it-comes each rank prints when it comes to a line.\n",
                 arguments[0], word);
      return 2;
    }
  }
  const auto run = [&](ProcessGroup& group) {
    body(group, RankPrinter(group, as_it_comes));
    group.finish();
  };
  if (threads > 0) {
    run_threads(threads, run);
    return 0;
  }
  ProcessGroup group = ProcessGroup::from_environment();
  try {
    run(group);
  } catch (const std::exception& error) {
    group.abort(error.what());
    throw;
  }
  if (group.size() == 1)
    fmt::print(stderr, "This was one rank. Four: `ringside launch -n 4 -- {0}`, `{0} --threads`\n",
               arguments[0]);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}: {}\n", arguments[0], error.what());
  return 1;
}

}  // namespace ringside::collectives
