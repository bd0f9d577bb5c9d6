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
  CHECK(figure.caption ==
        "10 % of the step was waiting for other ranks and the network; rank 0 computed longest, "
        "90.00 ms, and the fastest rank 90.00 ms.");
  CHECK(figure.table.text() ==
        "  rank  computing (ms)  waiting (ms)  calls  in calls (ms)\n"
        "     0           90.00         10.00      1          20.00\n"
        "     1           90.00         10.00      1          20.00\n");
  // 100 ms of a width of 200 ms; the step itself and what lies outside of the window are left out.
  CHECK(figure.drawing.at("kind") == "tracks");
  CHECK(figure.drawing.at("end") == doctest::Approx(100));
  CHECK(figure.drawing.at("scale") == doctest::Approx(200));
  const Json& ranks = figure.drawing.at("ranks");
  CHECK(ranks.size() == 2);
  CHECK(ranks[1].at("name") == "rank 1");
  CHECK(ranks[1].at("steps").dump() == "[]");
  CHECK(ranks[1].at("spans").dump() ==
        R"([["phase","forward","",0.0,30.0],["op","linear","",0.0,10.0],)"
        R"(["phase","backward","",30.0,70.0],)"
        R"(["call","all_reduce","bucket 0",60.0,80.0,4.0,5.0],)"  // MB, ms in the queue
        R"(["phase","finish gradients","",70.0,80.0],)"
        R"(["wait","wait for all_reduce","bucket 0",70.0,80.0],)"
        R"(["phase","optimizer","",80.0,100.0]])");
}

TEST_CASE("on a mesh the tracks have coordinates and the names of actions") {
  RankTrace trace = step_of(3);
  trace.coordinates = "pp=1,dp=1";
  trace.spans[1].about = "1F0";
  const Figure figure = tracks_figure("One step", {trace}, {1.0, 1.1}, 0.2);
  const Json& rank = figure.drawing.at("ranks")[0];
  CHECK(rank.at("name") == "rank 3 (pp=1,dp=1)");
  CHECK(rank.at("spans")[0].dump() == R"(["phase","forward","1F0",0.0,30.0])");
}

TEST_CASE("memory is stacked by kind and the caption names its peak") {
  const Figure figure = memory_figure(step_of(0), {1.0, 1.1});
  CHECK(figure.drawing.at("kind") == "chart");
  CHECK(figure.drawing.at("series").dump() ==
        R"([{"name":"parameters","style":"area","points":[[10.0,5.0],[60.0,5.0]]},)"
        R"({"name":"gradients","style":"area","points":[[10.0,0.0],[60.0,4.0]]}])");
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
  CHECK(contains(page, "<title>A &lt;title&gt; &amp; &quot;quotes&quot;</title>"));
  CHECK(contains(page, "prefers-color-scheme: dark"));
  CHECK(contains(page, "@media print"));
  CHECK(contains(page, "The loss goes from 8.000 bits per byte in step 1 to 6.500 in step 3."));
  const Json data = tests::data_of_report(page);
  CHECK(data.at("title") == report.title);
  CHECK(data.at("facts").dump() == R"([["ranks","2 over shm"]])");
  REQUIRE(data.at("figures").size() == 3);
  const Json& loss = data.at("figures")[2];
  CHECK(loss.at("table").at("columns")[1].at("title") == "loss (bits per byte)");
  CHECK(loss.at("table").at("rows").dump() == R"([["1","8"],["2","7.25"],["3","6.5"]])");
  // Where no script runs the page has the text of a terminal.
  CHECK(contains(page.substr(0, page.find("</noscript>")), "ranks    2 over shm\n\nOne step\n"));
}

TEST_CASE("no text of a report ends its data") {
  const Report report{"</script>", {}, {{"</script>", {}, "{{data}}", Table{{"</script>"}}}}};
  const std::string page = html(report);
  CHECK(what_is_malformed(page) == "");
  CHECK(tests::data_of_report(page).at("figures")[0].at("title") == "</script>");
}

TEST_CASE("the picture of a chart has its axes, and the colours that are given") {
  const Json picture =
      picture_of("tiny on 2 ranks", {{"Exposed communication",
                                      {.label = "size", .log = true, .is_size = true},
                                      {"ms per step", true},
                                      {{"followed", Series::line, {{5, 40}, {91, 90}}, 8}}}});
  CHECK(picture.at("title") == "tiny on 2 ranks");
  CHECK(picture.at("charts")[0].at("title") == "Exposed communication");
  CHECK(picture.at("charts")[0].at("drawing").dump() ==
        R"({"kind":"chart","x":{"label":"size","log":true,"unit":"bytes"},)"
        R"("y":{"label":"ms per step","log":true,"unit":""},)"
        R"("series":[{"name":"followed","style":"line","colour":8,)"
        R"("points":[[5.0,40.0],[91.0,90.0]]}]})");
}

TEST_CASE("drawing nothing is an error") {
  CHECK_THROWS_WITH_AS(loss_figure({}), "there is nothing to draw: no step was taken", Error);
  const Chart chart{
      "empty", {"x", true}, {"y", true}, {{"nothing above zero", Series::dots, {{1, 0}, {-1, 2}}}}};
  CHECK_THROWS_WITH_AS(drawing_of(chart),
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
