// Algorithms of MSCCL: what they become, over every transport, and what is refused.
#include "collectives/exchange/msccl_xml.hpp"
#include "base/read_file.hpp"

#include <array>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/proof/bounds.hpp"
#include "collectives/proof/verify.hpp"
#include "tests/collectives/exchange/forced.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

const std::filesystem::path files = std::filesystem::path(__FILE__).parent_path() / "msccl";

std::string msccl_file(const std::string& name) {
  return read_file(files / name);
}

std::string replaced_once(std::string text, const std::string& what, const std::string& with) {
  const auto at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), with);
}

std::string msccl_error(const std::string& text) {
  try {
    read_msccl(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// What the proof says.
std::string faults_of(const MscclAlgorithm& read) {
  return fmt::format("{}", fmt::join(verify(read.collective, read.schedules), "\n"));
}

// An algorithm of two GPUs; `steps` are those of each GPU's only block.
std::string two_gpus(const std::string& coll, bool in_place, int chunks,
                     const std::array<std::string, 2>& steps) {
  std::string text =
      fmt::format("<algo coll=\"{}\" inplace=\"{}\" nchunksperloop=\"{}\" ngpus=\"2\">", coll,
                  in_place ? 1 : 0, chunks);
  for (int gpu = 0; gpu < 2; ++gpu)
    text += fmt::format(
        "<gpu id=\"{0}\"><tb id=\"0\" send=\"{1}\" recv=\"{1}\" chan=\"0\">{2}</tb></gpu>", gpu,
        1 - gpu, steps[gpu]);
  return text + "</algo>";
}

std::string msccl_step(int number, const std::string& type, const std::string& from,
                       const std::string& to, int count = 1) {
  return fmt::format(
      "<step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" dstoff=\"{}\" "
      "cnt=\"{}\" depid=\"-1\" deps=\"-1\"/>",
      number, type, from[0], from.substr(1), to[0], to.substr(1), count);
}

std::string both(const std::string& coll, bool in_place, int chunks, const std::string& steps) {
  return two_gpus(coll, in_place, chunks, {steps, steps});
}

}  // namespace

TEST_CASE("MSCCL's files are proved, and the ring takes the steps of our ring") {
  for (const auto& entry : std::filesystem::directory_iterator(files)) {
    CAPTURE(entry.path().filename().string());
    const MscclAlgorithm read = read_msccl(msccl_file(entry.path().filename()));
    CHECK(faults_of(read) == "");
  }
  for (const int size : {2, 3, 4}) {
    const auto seen = read_msccl(msccl_file(fmt::format("ring_all_reduce_{}.xml", size))).schedules;
    const auto ours = make_schedules(find_algorithm(Collective::all_reduce, "ring"), size);
    REQUIRE(seen.size() == ours.size());
    CHECK(seen[0].steps.size() == ours[0].steps.size());
    CHECK(figures_of(seen).bytes == figures_of(ours).bytes);
    CHECK(figures_of(seen).added == figures_of(ours).added);
  }
}

// Over the slow link between the hosts {0, 1} and {2, 3} goes what the file sends there, no more.
TEST_CASE("what a GPU forwards from scratch memory it has received and kept") {
  const auto schedules = read_msccl(msccl_file("two_level_all_gather_4.xml")).schedules;
  for (int rank = 0; rank < 4; ++rank) {
    int across = 0, within = 0;
    for (const Step& step : schedules[rank].steps)
      if (step.send && step.send->to != rank)
        (step.send->to / 2 == rank / 2 ? within : across) += step.send->chunks.count;
    CHECK(across == 1);
    CHECK(within == 2);
  }
  GroupOptions options;
  options.algorithms = forced((files / "two_level_all_gather_4.xml").string());
  on_every_transport(
      4,
      [](ProcessGroup& group) {
        for (const std::size_t count : {0, 1, 501}) {
          const std::vector<int> mine(count, 10 + group.rank());
          std::vector<int> all(4 * count, -1);
          group.all_gather(std::span(mine), std::span(all));
          for (std::size_t i = 0; i < all.size(); ++i)
            require(all[i] == 10 + static_cast<int>(i / count), "[{}] is {}", i, all[i]);
        }
      },
      options);
}

TEST_CASE("an algorithm of MSCCL runs over every transport") {
  for (const int size : {2, 3, 4}) {
    GroupOptions options;
    options.algorithms = forced((files / fmt::format("ring_all_reduce_{}.xml", size)).string());
    on_every_transport(
        size,
        [&](ProcessGroup& group) {
          for (const std::size_t count : {0, 1, 7, 1003}) {
            std::vector<int> x(count, 1 << group.rank());
            group.all_reduce(std::span(x));
            require(x == std::vector<int>(count, (1 << size) - 1), "wrong sum of {}", count);
          }
        },
        options);
  }
  GroupOptions options;
  options.algorithms = forced((files / "direct_all_gather_3.xml").string() + "," +
                              (files / "one_shot_all_reduce_3.xml").string());
  on_every_transport(
      3,
      [&](ProcessGroup& group) {
        std::vector<int> all(6), mine(2, group.rank());
        group.all_gather(std::span(mine), std::span(all));
        require(all == std::vector{0, 0, 1, 1, 2, 2}, "wrong blocks");
        group.all_reduce(std::span(mine));
        require(mine == std::vector{3, 3}, "wrong sum");
      },
      options);
}

TEST_CASE("two GPUs that both send first exchange chunks in one step") {
  const auto read =
      read_msccl(both("allreduce", true, 2,
                      msccl_step(0, "s", "i0", "i0", 2) + msccl_step(1, "rrc", "i0", "i0", 2)));
  CHECK(faults_of(read) == "");
  CHECK(read.schedules[0].steps ==
        std::vector<Step>{{Send{.to = 1, .chunks = {0, 2}}, Receive{1, {0, 2}, Action::add}}});
}

TEST_CASE("out of place: input is sent as input, an all-to-all names chunks otherwise") {
  const auto steps = [](int gpu) {
    const std::string mine = std::to_string(gpu), theirs = std::to_string(1 - gpu);
    return msccl_step(0, "cpy", "i" + mine, "o" + mine) +
           msccl_step(1, "s", "i" + theirs, "o" + mine) +
           msccl_step(2, "r", "i" + mine, "o" + theirs);
  };
  const auto read = read_msccl(two_gpus("alltoall", false, 2, {steps(0), steps(1)}));
  CHECK(faults_of(read) == "");
  CHECK(read.schedules[0].steps[0].send == Send{.to = 1, .chunks = {0}, .input = 1});
}

TEST_CASE("reduce-scatter: what is sent on and not kept") {
  // Chunk 1-r of rank r goes to its owner, which adds its own.
  const auto read = read_msccl(
      two_gpus("reduce_scatter", false, 2,
               {msccl_step(0, "s", "i1", "o0") + msccl_step(1, "r", "i0", "s0") +
                    msccl_step(2, "cpy", "i0", "o0") + msccl_step(3, "re", "s0", "o0"),
                msccl_step(0, "s", "i0", "o0") + msccl_step(1, "r", "i1", "s0") +
                    msccl_step(2, "cpy", "i1", "o0") + msccl_step(3, "re", "s0", "o0")}));
  CHECK(faults_of(read) == "");
  CHECK(contains(
      msccl_error(two_gpus("allreduce", true, 1,
                           {msccl_step(0, "rrs", "i0", "i0") + msccl_step(1, "s", "i0", "i0"),
                            msccl_step(0, "s", "i0", "i0") + msccl_step(1, "r", "i0", "i0") +
                                msccl_step(2, "r", "i0", "i0")})),
      "gpu 0, tb 0, step 1 (line 1) reads i[0], which nothing has written"));
}

TEST_CASE(
    "a wrong file of MSCCL is refused with the element, what was expected and what was seen") {
  const std::string ring = msccl_file("ring_all_reduce_3.xml");
  const auto says = [](const std::string& text, const std::string& expected) {
    CHECK(msccl_error(text) == expected);
  };
  says("<algo", "line 1: expected '>', not the end of the file");
  says("<algo\n x=1>", "line 2: expected '\"', not '1'");
  says("<algo x='1' x='2'>", "line 1: 'x' stands twice");
  says("<algo x='1>", "line 1: expected ''' before the end of the file");
  says("<a>\n<b>\n</a>", "line 3: expected </b>, not </a>");
  says("<a>\n</a></a>", "line 2: expected an element, not </a>");
  says("<a>\n<b></b>", "line 1: <a> is never closed");
  says("<a/><b/>", "expected one element that holds all others, not 2");
  says("<a>text</a>", "line 1: expected '<', not 't'");
  says("<a>\n<!DOCTYPE x></a>", "line 2: expected a name, not '!'");
  says("<!-- <algo> -->\n<a/>", "line 2: expected <algo>, not <a>");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<a x='/>'>";
  says(deep, "line 1: more than 16 elements inside each other");
  says(replaced_once(ring, "coll=\"allreduce\"", "coll=\"broadcast\""),
       "algo (line 2): coll must be allreduce, allgather, reducescatter or alltoall, not "
       "'broadcast'");
  says(replaced_once(ring, "nchunksperloop=\"3\" ", ""),
       "algo (line 2) has no attribute 'nchunksperloop'");
  says(replaced_once(ring, "ngpus=\"3\"", "ngpus=\"4\""),
       "algo (line 2): ngpus is 4, but there are 3 elements <gpu>");
  says(replaced_once(ring, "<gpu id=\"1\"", "<gpu id=\"2\""), "gpu 2 (line 12): expected gpu 1");
  says(replaced_once(ring, "<tb id", "<block id"), "line 10: expected </block>, not </tb>");
  says(replaced_once(ring, "send=\"1\"", "send=\"7\""),
       "gpu 0, tb 0 (line 4): send must be a number from -1 to 2, not '7'");
  says(replaced_once(ring, "type=\"rrs\"", "type=\"rsr\""),
       "gpu 0, tb 0, step 1 (line 6): type must be one of s, r, rcs, rrc, rrcs, rrs, cpy, re and "
       "nop, not "
       "'rsr'");
  says(replaced_once(ring, "srcbuf=\"i\"", "srcbuf=\"x\""),
       "gpu 0, tb 0, step 0 (line 5): srcbuf must be i, o or s, not 'x'");
  says(replaced_once(ring, "srcoff=\"0\"", "srcoff=\"3\""),
       "gpu 0, tb 0, step 0 (line 5): i[3] is outside of the buffer of 3 chunks (nchunksperloop)");
  says(replaced_once(ring, "type=\"s\"", "type=\"nop\""),
       "gpu 0 sends 3 messages to gpu 1 on channel 0, which expects 4");
  says(replaced_once(ring, "cnt=\"1\"", "cnt=\"2\""),
       "gpu 0, tb 0, step 0 (line 5) sends 2 chunks, but gpu 1, tb 0, step 1 (line 15) receives 1");
  says(replaced_once(ring, "depid=\"-1\" deps=\"-1\"", "depid=\"3\" deps=\"0\""),
       "gpu 0, tb 0, step 0 (line 5): there is no step 0 of tb 3 to wait for");
  says(replaced_once(ring, "depid=\"-1\" deps=\"-1\"", "depid=\"0\" deps=\"4\""),
       "gpu 0, tb 0, step 0 (line 5) never begins: its peer, or the step that it waits for, waits "
       "as well");
  says(
      both("allreduce", true, 2, msccl_step(0, "s", "i0", "i0") + msccl_step(1, "rrc", "i1", "i0")),
      "gpu 0, tb 0, step 1 (line 1): src and dst of rrc must be the same place, as what arrives is "
      "added "
      "there");
  says(both("allreduce", false, 1, msccl_step(0, "s", "i0", "i0") + msccl_step(1, "r", "i0", "i0")),
       "gpu 1, tb 0, step 1 (line 1) writes to i, but the algorithm is not in place "
       "(inplace=\"1\")");
  says(both("allgather", true, 3, ""),
       "algo (line 1): nchunksperloop must be a multiple of ngpus, 2, not 3");
}

TEST_CASE("scratch memory that a schedule cannot do without is refused") {
  CHECK(msccl_error(both("allreduce", true, 1,
                         msccl_step(0, "s", "i0", "s0") + msccl_step(1, "r", "i0", "s0") +
                             msccl_step(2, "re", "i0", "s0"))) ==
        "gpu 1, tb 0, step 2 (line 1) adds to scratch memory, which a schedule does not have");
  CHECK(msccl_error(both("allreduce", true, 1,
                         msccl_step(0, "s", "i0", "s0") + msccl_step(1, "r", "i0", "s0") +
                             msccl_step(2, "s", "s0", "i0") + msccl_step(3, "r", "s0", "i0"))) ==
        "gpu 0, tb 0, step 2 (line 1) forwards from s[0]: a schedule has no scratch memory, and no "
        "chunks of gpu 0 are empty that could hold it");
  CHECK(msccl_error(both("allreduce", true, 1, msccl_step(0, "cpy", "s0", "i0"))) ==
        "gpu 0, tb 0, step 0 (line 1) reads s[0], which nothing has written");
  // GPU 1's sum is overwritten before GPU 0 uses it.
  CHECK(msccl_error(two_gpus("allreduce", true, 1,
                             {msccl_step(0, "s", "i0", "i0") + msccl_step(1, "r", "i0", "s0") +
                                  msccl_step(2, "s", "i0", "i0") + msccl_step(3, "cpy", "s0", "i0"),
                              msccl_step(0, "rrc", "i0", "i0") + msccl_step(1, "s", "i0", "s0") +
                                  msccl_step(2, "r", "i0", "i0")})) ==
        "gpu 0, tb 0, step 3 (line 1) needs what gpu 1 sent to s[0] earlier: a schedule has no "
        "scratch memory, and gpu 1 no longer holds it");
}

TEST_CASE(
    "what was sent to scratch memory as input is sent as input, also when it is overwritten") {
  const auto read =
      read_msccl(two_gpus("allreduce", true, 1,
                          {msccl_step(0, "r", "i0", "s0") + msccl_step(1, "s", "i0", "i0") +
                               msccl_step(2, "re", "s0", "i0"),
                           msccl_step(0, "s", "i0", "s0") + msccl_step(1, "r", "i0", "i0")}));
  CHECK(read.schedules[1].steps.back().send == Send{.to = 0, .chunks = {0}, .input = 0});
  CHECK(faults_of(read) == "at the end chunk 0 on rank 1 lacks rank 1");
}

TEST_CASE(
    "every algorithm of the catalogue is written for MSCCL, read again and proved, or refused") {
  using enum Collective;
  const std::set<Collective> known = {all_reduce, all_gather, reduce_scatter, all_to_all};
  for (const Algorithm& algorithm : all_algorithms())
    for (int size = 1; size <= 9; ++size) {
      const auto schedules = make_schedules(algorithm, size);
      CAPTURE(algorithm.title());
      CAPTURE(size);
      try {
        const MscclAlgorithm read =
            read_msccl(write_msccl(std::string(algorithm.name), algorithm.collective, schedules));
        CHECK(known.contains(algorithm.collective));
        CHECK(read.collective == algorithm.collective);
        CHECK(faults_of(read) == "");
        CHECK(figures_of(read.schedules).bytes == figures_of(schedules).bytes);
      } catch (const Error& error) {
        const std::string why = error.what();
        if (known.contains(algorithm.collective)) {
          CHECK(algorithm.title() == "bruck all_to_all");
          CHECK(contains(why,
                         "sends in pieces what it also receives: a file of MSCCL would need "
                         "scratch memory"));
        } else {
          CHECK(why == fmt::format("MSCCL's files are for all_reduce, all_gather, reduce_scatter "
                                   "and all_to_all, not for {}",
                                   name_of(algorithm.collective)));
        }
      }
    }
}

TEST_CASE("a file for MSCCL has one thread block for each pair of peers, in the schedule's order") {
  const auto ring = make_schedules(find_algorithm(Collective::reduce_scatter, "ring"), 3);
  std::string steps;
  int number = 0;
  for (const auto& [type, chunk] : {std::pair("s", 2), {"rrc", 1}, {"s", 1}, {"rrc", 0}})
    steps += fmt::format(
        "      <step s=\"{0}\" type=\"{1}\" srcbuf=\"i\" srcoff=\"{2}\" dstbuf=\"i\" "
        "dstoff=\"{2}\" "
        "cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>\n",
        number++, type, chunk);
  CHECK(contains(write_msccl("ring", Collective::reduce_scatter, ring),
                 "ngpus=\"3\" coll=\"reduce_scatter\" inplace=\"1\">\n"
                 "  <gpu id=\"0\" i_chunks=\"3\" o_chunks=\"1\" s_chunks=\"0\">\n"
                 "    <tb id=\"0\" send=\"1\" recv=\"2\" chan=\"0\">\n" +
                     steps + "    </tb>\n  </gpu>\n"));
  // Each rank sends its input after it has added to it, so the output begins as a copy.
  const auto one_shot = make_schedules(find_algorithm(Collective::all_reduce, "one_shot"), 3);
  const std::string text = write_msccl("one_shot", Collective::all_reduce, one_shot);
  CHECK(contains(text, "inplace=\"0\""));
  CHECK(contains(text, R"(type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1")"));
  // The line before it stands in the other block.
  CHECK(contains(text, R"(cnt="1" depid="0" deps="2" hasdep="0"/>)"));
}

TEST_CASE("what MSCCL's connections or blocks do not hold is refused") {
  const auto refused = [](Collective collective, const std::string& name, int size) {
    try {
      write_msccl(name, collective, make_schedules(find_algorithm(collective, name), size));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused(Collective::all_reduce, "one_shot", 34) ==
        "rank 0 has 33 peers: MSCCL takes up to 32");
  CHECK(refused(Collective::all_reduce, "ring", 66) ==
        "a block of rank 0 has 260 steps: MSCCL takes up to 255");
}
