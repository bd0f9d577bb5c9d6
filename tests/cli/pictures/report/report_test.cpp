// Charts and pages are well-formed, self-contained, and show the right numbers.
#include "cli/pictures/report/report.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "cli/pictures/chart.hpp"
#include "cli/pictures/report/report_figures.hpp"
#include "cli/pictures/text_file.hpp"
#include "cli/pictures/tracks_figure.hpp"
#include "tests/cli/pictures/report/markup.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::cli;
using ringside::tests::contains;
using ringside::tests::what_is_malformed;

namespace {

// A step of 100 ms: 30 ms forward; 40 ms backward, with a call of 20 ms that begins before its end;
// 10 ms of waiting for the call; 20 ms optimizer.
RankTrace step_of(int rank) {
  using enum Trace::Track;
  using enum Trace::Kind;
  RankTrace trace{.rank = rank, .memory_kinds = {"parameters", "gradients"}};
  trace.spans = {{compute, phase, "step 3", "", 1.000, 1.100},
                 {compute, phase, "forward", "", 1.000, 1.030},
                 {compute, op, "linear", "", 1.000, 1.010},
                 {compute, phase, "backward", "", 1.030, 1.070},
                 {communication, call, "all_reduce", "bucket 0", 1.060, 1.080, 1.055, 4000000},
                 {compute, phase, "finish gradients", "", 1.070, 1.080},
                 {compute, wait, "wait for all_reduce", "bucket 0", 1.070, 1.080},
                 {compute, phase, "optimizer", "", 1.080, 1.100},
                 {compute, phase, "forward", "", 1.100, 1.130}};
  trace.memory = {{1.01, {5'000'000, 0}}, {1.06, {5'000'000, 4'000'000}}, {1.2, {99'000'000, 0}}};
  return trace;
}

}  // namespace

TEST_CASE("the totals of a step count the spans within it") {
  const TrackTotals totals = totals_of(step_of(0), {1.0, 1.1});
  CHECK(totals.computing == doctest::Approx(0.090));
  CHECK(totals.network == doctest::Approx(0.020));
  CHECK(totals.exposed == doctest::Approx(0.010));
  CHECK(totals.calls == 1);
}

TEST_CASE("a wait between two phases, as in a pipeline, takes nothing from computing") {
  RankTrace trace = step_of(0);
  trace.spans[6].start = 1.085;  // 5 ms of the wait are in the phase optimizer
  trace.spans[6].end = 1.100;
  trace.spans[7].start = 1.095;
  const TrackTotals totals = totals_of(trace, {1.0, 1.1});
  CHECK(totals.exposed == doctest::Approx(0.015));
  CHECK(totals.computing == doctest::Approx(0.030 + 0.040 + 0.010 + 0.005 - 0.005));
}

TEST_CASE("the tracks show every phase and call and hatch exposed communication") {
  const Figure figure = tracks_figure("One step", {step_of(0), step_of(1)}, {1.0, 1.1}, 0.2);
  CHECK(what_is_malformed(figure.drawing) == "");
  CHECK(figure.caption ==
        "10 % of the step was waiting for other ranks and the network; rank 0 computed longest, "
        "90.00 ms, and the fastest rank 90.00 ms.");
  CHECK(figure.table.text() ==
        "  rank  computing (ms)  waiting (ms)  calls  in calls (ms)\n"
        "     0           90.00         10.00      1          20.00\n"
        "     1           90.00         10.00      1          20.00\n");
  CHECK(contains(figure.drawing,
                 "aria-label=\"Rank 1: all_reduce (bucket 0), 20.00 ms, from 60.00 to 80.00 ms; 4 "
                 "MB, queued for 5.00 ms before\""));
  CHECK(contains(figure.drawing,
                 "<g class=\"wait\" role=\"img\" tabindex=\"-1\" aria-label=\"Rank 0: wait for "
                 "all_reduce (bucket 0), 10.00 ms"));
  // backward; the whole width is 200 ms
  CHECK(contains(figure.drawing, "<rect x=\"15.000%\" y=\"2\" width=\"20.000%\" height=\"24\" />"));
  // Ops are data, for the page to draw when it is zoomed in.
  CHECK(!contains(figure.drawing, "Rank 0: linear"));
  CHECK(contains(figure.drawing, R"({"scale":200.0,"ranks":[{"rank":0,"ops":)"
                                 R"([["linear","forward",0.0,10.0]],"steps":[]},)"));
  CHECK(!contains(figure.drawing, "step 3"));
}

TEST_CASE("on a mesh the tracks have coordinates and the names of actions") {
  RankTrace trace = step_of(3);
  trace.coordinates = "pp=1,dp=1";
  trace.spans[1].about = "1F0";
  const Figure figure = tracks_figure("One step", {trace}, {1.0, 1.1}, 0.2);
  CHECK(contains(figure.drawing, ">rank 3 (pp=1,dp=1)<"));
  CHECK(contains(figure.drawing, ">1F0<"));
  CHECK(contains(figure.drawing, ">backward<"));
}

TEST_CASE("memory is stacked by kind and the caption names its peak") {
  const Figure figure = memory_figure(step_of(0), {1.0, 1.1});
  CHECK(what_is_malformed(figure.drawing) == "");
  CHECK(contains(figure.drawing, ">parameters</text>"));
  CHECK(contains(figure.drawing, ">gradients</text>"));
  CHECK(contains(figure.caption, "The peak is 9.0 MB, 60.0 ms after the step began."));
  CHECK(figure.table.rows.size() == 2);  // the third sample is outside the window
  CHECK(figure.table.text() ==
        "  time since the step began (ms)  parameters  gradients\n"
        "                              10           5          0\n"
        "                              60           5          4\n");
  CHECK_THROWS_WITH_AS(memory_figure(step_of(0), {5, 6}),
                       "there is nothing to draw: no memory was recorded in that step", Error);
}

TEST_CASE("a page is self-contained") {
  Report report{"A <title> & \"quotes\"", {{"ranks", "2 over shm"}}, {}};
  report.figures.push_back(tracks_figure("One step", {step_of(0)}, {1.0, 1.1}, 0));
  report.figures.push_back(memory_figure(step_of(0), {1.0, 1.1}));
  report.figures.push_back(loss_figure({{1, 8.0}, {2, 7.25}, {3, 6.5}}));
  const std::string page = html(report);
  CHECK(what_is_malformed(page) == "");
  CHECK(!contains(page, "http"));
  CHECK(!contains(page, "src="));
  CHECK(!contains(page, "@import"));
  CHECK(contains(page, "<h1>A &lt;title&gt; &amp; &quot;quotes&quot;</h1>"));
  CHECK(contains(page, "<dt>ranks</dt><dd>2 over shm</dd>"));
  CHECK(contains(page, "prefers-color-scheme: dark"));
  CHECK(contains(page, "@media print"));
  CHECK(contains(page, "The loss goes from 8.000 bits per byte in step 1 to 6.500 in step 3."));
  CHECK(contains(page, "<td>2</td><td>7.25</td>"));
  std::size_t figures = 0, tables = 0;
  for (std::size_t at = 0; (at = page.find("<figure", at)) != std::string::npos; ++at) ++figures;
  for (std::size_t at = 0; (at = page.find("<table>", at)) != std::string::npos; ++at) ++tables;
  CHECK(figures == 3);
  CHECK(tables == 3);
}

TEST_CASE("a chart in a file of its own is well-formed and contains its style") {
  const std::string svg =
      svg_file("tiny on 2 ranks", {{"Exposed communication",
                                    {"mean bucket size (MB)", true},
                                    {"ms per step", true},
                                    {{"followed", Series::line, {{5, 40}, {91, 90}}, 8}}}});
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(what_is_malformed(svg) == "");
  CHECK(contains(svg, "prefers-color-scheme: dark"));
  CHECK(contains(svg, ">mean bucket size (MB)</text>"));
}

TEST_CASE("ticks are round numbers within the range") {
  CHECK(round_ticks(0, 100, 5) == std::vector<double>{0, 20, 40, 60, 80, 100});
  CHECK(round_ticks(0, 1.3, 5) == std::vector<double>{0, 0.5, 1});
  CHECK(round_ticks(-3, 4, 4) == std::vector<double>{-2, 0, 2, 4});
  CHECK_THROWS_WITH_AS(round_ticks(1, 1, 5), "there are no ticks from 1 to 1: the range is empty",
                       Error);
}

TEST_CASE("drawing nothing is an error") {
  CHECK_THROWS_WITH_AS(loss_figure({}), "there is nothing to draw: no step was taken", Error);
  const Chart chart{
      "empty", {"x", true}, {"y", true}, {{"nothing above zero", Series::dots, {{1, 0}, {-1, 2}}}}};
  CHECK_THROWS_WITH_AS(draw(chart),
                       "there is nothing to draw: the axis can show none of the values", Error);
  CHECK_THROWS_WITH_AS(write_report("/nowhere/report.html", {"x", {}, {}}, stdout),
                       "cannot write the report to /nowhere/report.html: No such file or directory",
                       Error);
}

TEST_CASE("a full disk is named as the reason") {
  CHECK_THROWS_WITH_AS(write_text_file("/dev/full", std::string(100000, 'x'), "the report"),
                       "cannot write the report to /dev/full: No space left on device", Error);
}

TEST_CASE("the check for well-formed pages finds errors") {
  CHECK(what_is_malformed("<p>a<b>b</b></p>") == "");
  CHECK(what_is_malformed("<p>a<b>b</p></b>") == "</p> closes <b>");
  CHECK(what_is_malformed("<p>a") == "<p> is not closed");
  CHECK(what_is_malformed("<p a=1>x</p>") == "an attribute without quotes: <p a=1>");
  CHECK(what_is_malformed("<p a=\"1\" a=\"2\" />") == "an attribute twice: <p a=\"1\" a=\"2\" >");
}
