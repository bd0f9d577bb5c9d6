// The picture of a collective: docs/ring.svg is what the program draws, every step is in it, and
// its colours can be read.
#include "cli/pictures/schedule/schedule_picture.hpp"
#include "base/read_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include <doctest/doctest.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/cli/pictures/report/markup.hpp"
#include "tests/cli/run_program.hpp"

namespace ringside::cli {
namespace {

using namespace collectives;
using testing::contains;
using testing::ringside_binary;
using testing::run_program;

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
    ++count;
  return count;
}

// The relative luminance of "#rrggbb" (WCAG 2.2).
double luminance(const std::string& colour) {
  double sum = 0;
  const double weights[] = {0.2126, 0.7152, 0.0722};
  for (int i = 0; i < 3; ++i) {
    const double part = std::stoi(colour.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    sum += weights[i] * (part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4));
  }
  return sum;
}

double contrast(const std::string& a, const std::string& b) {
  const double x = luminance(a), y = luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

// The value of a variable of the style, from `at` on.
std::string variable(const std::string& svg, const std::string& name, std::size_t at) {
  const std::string before = "--" + name + ": ";
  const std::size_t begin = svg.find(before, at);
  REQUIRE(begin != std::string::npos);
  return svg.substr(begin + before.size(), 7);
}

}  // namespace

TEST_CASE("docs/ring.svg is what the program draws") {
  const std::string file = fmt::format("/tmp/ringside_ring_{}.svg", getpid());
  const auto outcome =
      run_program({ringside_binary, "step", "all_reduce", "-n", "4", "--svg", file});
  CHECK(outcome.exit_code == 0);
  CHECK_MESSAGE(read_file(file) == read_file(RINGSIDE_DOCS "/ring.svg"),
                "draw it again: ringside step all_reduce -n 4 --svg docs/ring.svg");
  std::remove(file.c_str());
}

TEST_CASE("the picture of every algorithm is well-formed and has all steps and messages") {
  for (const Algorithm& algorithm : all_algorithms())
    for (const int ranks : {1, 2, 5, 8}) {
      CAPTURE(algorithm.title());
      CAPTURE(ranks);
      const std::string svg = svg_of_schedule(algorithm, ranks, 0);
      CHECK(tests::what_is_malformed(svg) == "");
      const auto schedules = make_schedules(algorithm, ranks);
      std::size_t messages = 0, with_payload = 0, received = 0;
      for (int rank = 0; rank < ranks; ++rank)
        for (const Step& step : schedules[rank].steps) {
          if (step.send && step.send->to != rank) {
            ++messages;
            if (step.send->chunks.count > 0) ++with_payload;
          }
          if (step.receive)
            received +=
                algorithm.collective == Collective::barrier ? 1 : step.receive->chunks.count;
        }
      const std::size_t steps = schedules[0].steps.size();
      CHECK(count_of(svg, "<line ") == messages);
      CHECK(count_of(svg, "<g class=\"fly ") == with_payload);
      CHECK(count_of(svg, "class=\"box new\"") == received);
      CHECK(count_of(svg, "@keyframes row") == steps);
      for (std::size_t step = 0; step < steps; ++step)
        CHECK(contains(svg, fmt::format(">step {}</text>", step)));
    }
}

TEST_CASE("at the end of the ring every box has the colours of all ranks") {
  const std::string svg = svg_of_schedule(find_algorithm(Collective::all_reduce, "ring"), 3, 0);
  const std::string end = svg.substr(svg.rfind("<g class=\"row4\">"));
  for (const char* colour : {"var(--c0)", "var(--c1)", "var(--c2)"})
    CHECK(count_of(end, colour) == 3 * 3);
}

TEST_CASE("a message of the ring flies with the colours of the chunk that it carries") {
  // In step s of the first half a chunk carries the sum of s + 1 ranks, in the second half of all.
  const int ranks = 3;
  const std::string svg = svg_of_schedule(find_algorithm(Collective::all_reduce, "ring"), ranks, 0);
  for (int step = 0; step < 2 * (ranks - 1); ++step) {
    CAPTURE(step);
    const auto summed = static_cast<std::size_t>(std::min(step + 1, ranks));
    std::size_t messages = 0;
    const std::string group = fmt::format("<g class=\"fly fly{}\"", step + 1);
    for (std::size_t at = 0; (at = svg.find(group, at)) != std::string::npos; ++at, ++messages)
      CHECK(count_of(svg.substr(at, svg.find("</g>", at) - at), "fill=\"var(--c") == summed);
    CHECK(messages == static_cast<std::size_t>(ranks));
  }
}

TEST_CASE("the picture moves only for readers who did not ask for reduced motion") {
  const std::string svg = svg_of_schedule(find_algorithm(Collective::all_reduce), 4, 0);
  const std::size_t motion = svg.find("@media (prefers-reduced-motion: no-preference)");
  REQUIRE(motion != std::string::npos);
  CHECK(svg.find("animation:") > motion);
  CHECK(svg.find("<animate") == std::string::npos);
}

TEST_CASE("text and colours of the picture have a contrast of 4.5 and more, in light and dark") {
  const std::string svg = svg_of_schedule(find_algorithm(Collective::all_reduce), 8, 0);
  for (const std::size_t at : {std::size_t{0}, svg.find("prefers-color-scheme: dark")}) {
    const std::string paper = variable(svg, "paper", at);
    for (const char* name : {"ink", "soft", "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"}) {
      CAPTURE(name);
      CHECK(contrast(variable(svg, name, at), paper) >= 4.5);
    }
  }
  CHECK(contrast("#000000", "#ffffff") == doctest::Approx(21));
  CHECK(contrast("#777777", "#ffffff") == doctest::Approx(4.48).epsilon(0.01));
}

TEST_CASE("the picture has as many colours as ranks, and no more") {
  const auto outcome = run_program({ringside_binary, "step", "-n", "9", "--svg", "/tmp/x.svg"});
  CHECK(outcome.exit_code == 2);
  CHECK(contains(outcome.err, "--svg draws up to 8 ranks, not 9: choose fewer with -n"));
}

}  // namespace ringside::cli
