//     fuzz_NAME SECONDS [SEED]            runs damaged inputs for this time
//     fuzz_NAME --inputs COUNT [SEED]     runs so many of them
//     fuzz_NAME --only NUMBER [SEED]      runs one input again, for a debugger
//
// Input number i of a seed is always the same, so a failure can be reproduced.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <unistd.h>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace ringside;

volatile std::uint64_t number_now = 0;

// The random numbers of one input.
class InputRandom {
 public:
  InputRandom(std::uint64_t seed, std::uint64_t number) : seed_(seed), number_(number) {}
  std::size_t below(std::size_t n) {
    return n == 0 ? 0 : random_below(n, seed_, number_, counter_++);
  }

 private:
  std::uint64_t seed_, number_, counter_ = 0;
};

void damage(std::string& input, InputRandom& random) {
  static const auto words = fuzz::words();
  const std::size_t at = random.below(input.size() + 1),
                    length = random.below(std::min<std::size_t>(input.size() - at, 24) + 1);
  switch (random.below(7)) {
    case 0:
      if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << random.below(8)));
      return;
    case 1:
      if (at < input.size()) input[at] = static_cast<char>(random.below(256));
      return;
    case 2:
      input.erase(at, length);
      return;
    case 3:
      input.insert(at, input.substr(random.below(input.size() + 1), length));
      return;
    case 4:
      input.insert(at, words[random.below(words.size())]);
      return;
    case 5:
      input.replace(at, length, words[random.below(words.size())]);
      return;
    default:
      input.resize(random.below(input.size() + 1));
      return;
  }
}

std::string input_of(std::uint64_t seed, std::uint64_t number) {
  static const auto good = fuzz::good_inputs();
  InputRandom random(seed, number);
  std::string input = good[random.below(good.size())];
  for (std::size_t left = random.below(5); left > 0; --left) damage(input, random);
  if (random.below(4) != 0) fuzz::repair(input);
  return input;
}

// A signal handler, so it calls only async-signal-safe functions.
void report_and_raise(int signal) {
  char text[64] = "ended by a signal at input --only ";
  std::size_t end = 34;
  char digits[20];
  int count = 0;
  for (std::uint64_t n = number_now; count == 0 || n > 0; n /= 10)
    digits[count++] = static_cast<char>('0' + n % 10);
  while (count > 0) text[end++] = digits[--count];
  text[end++] = '\n';
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, end);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Runs inputs while go_on(number of the next one).
template <class GoOn>
int fuzz_while(GoOn go_on, std::uint64_t seed) {
  const auto start = Clock::now();
  std::uint64_t accepted = 0, number = 0;
  for (; go_on(number); ++number) {
    number_now = number;
    accepted += fuzz::try_input(input_of(seed, number));
  }
  fmt::print("{} inputs of seed {} in {:.0f} s, {} of them accepted\n", number, seed,
             seconds_since(start), accepted);
  const bool sound = accepted > 0 && accepted < number / 2;  // otherwise the test is meaningless
  if (!sound) fmt::print("expected some inputs to be accepted, but less than half\n");
  return sound ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string option = argc > 2 ? argv[1] : "";
  const bool once = option == "--only", counted = option == "--inputs";
  const auto number_at = [&](int i, std::uint64_t otherwise) {
    return i < argc ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  const std::uint64_t seed = number_at(once || counted ? 3 : 2, 1), number = number_at(2, 0);
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS}) std::signal(signal, report_and_raise);
  try {
    if (counted) return fuzz_while([number](std::uint64_t next) { return next < number; }, seed);
    if (!once) {
      const auto end = Deadline::after(Seconds(argc > 1 ? std::strtod(argv[1], nullptr) : 1.5));
      return fuzz_while([&end](std::uint64_t) { return !end.expired(); }, seed);
    }
    number_now = number;
    const std::string input = input_of(seed, number);
    fmt::print("{}\n", input);
    std::fflush(stdout);
    fmt::print("{}\n", fuzz::try_input(input) ? "accepted" : "refused");
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "input --only {} of seed {}: {}\n", number_now, seed, error.what());
    return 1;
  }
}
