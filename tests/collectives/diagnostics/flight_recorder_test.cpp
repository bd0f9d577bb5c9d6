// The flight recorder's files, and what a postmortem makes of them.
#include "collectives/diagnostics/flight_recorder.hpp"
#include "base/read_file.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using ringside::tests::contains;

namespace {

// A folder for one test. The recorder creates it; the destructor removes it.
struct Folder {
  Folder()
      : path(std::filesystem::temp_directory_path() /
             fmt::format("ringside-flight-test-{}", ::getpid())) {
    std::filesystem::remove_all(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

Call all_reduce_of(std::uint64_t count) {
  Call call;
  call.collective = Collective::all_reduce;
  call.count = count;
  return call;
}

// A recorder of `calls` calls that ended well.
struct Recorder : FlightRecorder {
  Recorder(int rank, int size, const Folder& folder, int calls)
      : FlightRecorder(rank, size, folder.path) {
    for (int i = 1; i <= calls; ++i) {
      begin(static_cast<std::uint64_t>(i), all_reduce_of(100), 6);
      end(FlightEntry::done);
    }
  }
};

}  // namespace

TEST_CASE("a file has the last calls in their order, and the state of each") {
  const Folder folder;
  Recorder recorder(2, 4, folder, 300);  // more than the recorder keeps
  FlightEntry& entry = recorder.begin(301, all_reduce_of(1000), 6);
  entry.step = 3, entry.waiting_for = 1, entry.bytes_received = 4096;
  recorder.write("rank 1 is gone");
  const auto flights = read_flights(folder.path);
  REQUIRE(flights.size() == 1);
  CHECK(flights[0].header.rank == 2);
  CHECK(flights[0].header.size == 4);
  CHECK(std::string(flights[0].header.cause) == "rank 1 is gone");
  const auto& entries = flights[0].entries;
  REQUIRE(entries.size() == FlightRecorder::capacity);
  CHECK(entries.front().sequence == 301 - FlightRecorder::capacity + 1);
  CHECK(entries.back().sequence == 301);
  CHECK(entries.back().state == FlightEntry::under_way);
  CHECK(entries.back().step == 3);
  CHECK(entries.back().waiting_for == 1);
  CHECK(entries.back().bytes_received == 4096);
  CHECK(entries.front().state == FlightEntry::done);
}

TEST_CASE("a record is not written through a link that somebody else has put in its place") {
  const Folder folder;
  std::filesystem::create_directory(folder.path);
  const auto victim = folder.path / "victim";
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, folder.path / "0.flight");
  Recorder recorder(0, 1, folder, 1);
  recorder.write("rank 1 is gone");
  CHECK(read_file(victim) == "precious");
}

TEST_CASE("without a folder nothing is written") {
  FlightRecorder recorder(0, 1, "");
  recorder.begin(1, all_reduce_of(1), 1);
  recorder.write("nothing");
  CHECK(!std::filesystem::exists("0.flight"));
}

TEST_CASE("SIGUSR1 writes the records of all ranks in the process") {
  const Folder folder;
  const Recorder zero(0, 2, folder, 3), one(1, 2, folder, 2);
  ::raise(SIGUSR1);
  const auto flights = read_flights(folder.path);
  REQUIRE(flights.size() == 2);
  CHECK(flights[1].entries.size() == 2);
  CHECK(std::string(flights[1].header.cause) == "asked for by SIGUSR1");
}

TEST_CASE("a later SIGUSR1 or failure leaves the first cause and its time") {
  const Folder folder;
  Recorder recorder(0, 1, folder, 1);
  ::raise(SIGUSR1);
  CHECK(std::string(read_flights(folder.path)[0].header.cause) == "asked for by SIGUSR1");
  recorder.write("rank 1 is gone");
  const FlightHeader first = read_flights(folder.path)[0].header;
  CHECK(std::string(first.cause) == "rank 1 is gone");
  ::raise(SIGUSR1);
  recorder.write("a consequence");
  const FlightHeader last = read_flights(folder.path)[0].header;
  CHECK(std::string(last.cause) == "rank 1 is gone");
  CHECK(last.written_ns == first.written_ns);
}

TEST_CASE("a recorder lives until a signal handler has written its file") {
  const Folder folder;
  std::filesystem::create_directory(folder.path);
  // The handler writes the recorders in the order in which they were made, and blocks in open(2)
  // until somebody reads the pipe.
  const auto first = folder.path / "0.flight", pipe = folder.path / "1.flight";
  for (const auto& each : {first, pipe}) REQUIRE(::mkfifo(each.c_str(), 0600) == 0);
  const FlightRecorder zero(0, 2, folder.path);
  auto recorder = std::make_unique<FlightRecorder>(1, 2, folder.path);
  std::atomic<bool> stop = false, destroyed = false;
  std::thread signalled([&] {
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  ::pthread_kill(signalled.native_handle(), SIGUSR1);
  CHECK(!read_file(first).empty());  // the handler runs
  std::thread destroyer([&] {
    recorder.reset();
    destroyed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(!destroyed);
  CHECK(read_file(pipe).size() ==
        sizeof(FlightHeader) + FlightRecorder::capacity * sizeof(FlightEntry));
  stop = true;
  destroyer.join();
  signalled.join();
  CHECK(destroyed);
}

TEST_CASE("a postmortem names the call at which the ranks diverged") {
  const Folder folder;
  Recorder zero(0, 3, folder, 4), one(1, 3, folder, 4), two(2, 3, folder, 4);
  for (FlightRecorder* recorder :
       {static_cast<FlightRecorder*>(&zero), static_cast<FlightRecorder*>(&two)})
    recorder->begin(5, all_reduce_of(100), 4);
  one.begin(5, all_reduce_of(200), 4);
  for (FlightRecorder* recorder :
       {static_cast<FlightRecorder*>(&zero), static_cast<FlightRecorder*>(&one),
        static_cast<FlightRecorder*>(&two)}) {
    recorder->end(FlightEntry::failed);
    recorder->write("the ranks disagree");
  }
  const auto text = postmortem(read_flights(folder.path));
  CAPTURE(text);
  CHECK(contains(
      text, "The ranks diverged at call #5:\n  ranks 0 and 2 made all_reduce of 100 fp32 (sum, "));
  CHECK(contains(text, "\n  rank 1 made all_reduce of 200 fp32 (sum, "));
  CHECK(contains(text, "First to write, rank 0: the ranks disagree\n"));
}

TEST_CASE("a postmortem names the rank that had not come to the last call") {
  const Folder folder;
  Recorder zero(0, 3, folder, 7), one(1, 3, folder, 7), two(2, 3, folder, 7);
  for (FlightRecorder* recorder :
       {static_cast<FlightRecorder*>(&zero), static_cast<FlightRecorder*>(&two)}) {
    FlightEntry& entry = recorder->begin(8, all_reduce_of(100), 4);
    entry.step = 1, entry.waiting_for = 1, entry.bytes_received = 400;
    recorder->end(FlightEntry::failed);
    recorder->write("rank 1 does not answer");
  }
  one.write("asked for by SIGUSR1");
  const auto text = postmortem(read_flights(folder.path));
  CAPTURE(text);
  CHECK(contains(text, "rank 0   failed in call #8, all_reduce of 100 fp32 (sum, "));
  CHECK(contains(text, "step 1 (of 0 to 3), 400 bytes received, waiting for rank 1\n"));
  CHECK(contains(text, "rank 1   had ended call #7, all_reduce of 100 fp32 (sum, "));
  CHECK(contains(
      text,
      "All made the same calls, but rank 1 had not come to call #8, in which the others wait"));
}

TEST_CASE("a postmortem names the rank that left no record") {
  const Folder folder;
  for (const int rank : {0, 1, 3}) {
    Recorder recorder(rank, 4, folder, 2);
    recorder.begin(3, all_reduce_of(100), 6);
    recorder.end(FlightEntry::failed);
    recorder.write("rank 2 is gone");
  }
  const auto text = postmortem(read_flights(folder.path));
  CAPTURE(text);
  CHECK(contains(text, "rank 2 left no record: killed, or stuck, or on another host\n"));
  CHECK(contains(text, "All that left a record made the same calls: look at rank 2."));
}

TEST_CASE("a postmortem names the rank that left no record also where another one is late") {
  const Folder folder;
  Recorder zero(0, 3, folder, 7), two(2, 3, folder, 7);
  zero.begin(8, all_reduce_of(100), 4);
  zero.end(FlightEntry::failed);
  for (Recorder* recorder : {&zero, &two}) recorder->write("rank 1 is gone");
  const auto text = postmortem(read_flights(folder.path));
  CAPTURE(text);
  CHECK(contains(text,
                 "but rank 2 had not come to call #8, in which the others wait: look at what "));
  CHECK(contains(text, " Or the cause is a rank that left no record: look at rank 1.\n"));
}

TEST_CASE("an error names a file that is not a flight recorder's") {
  const Folder folder;
  const auto path = folder.path.string();
  CHECK_THROWS_WITH_AS(
      read_flights(folder.path),
      fmt::format("{} is not a folder: name the one that RINGSIDE_FLIGHT_DIR named", path).c_str(),
      Error);
  std::filesystem::create_directory(folder.path);
  CHECK_THROWS_WITH_AS(
      read_flights(folder.path),
      fmt::format("{} holds no file of a flight recorder (RANK.flight, or PyTorch's "
                  "nccl_trace_rank_RANK)",
                  path)
          .c_str(),
      Error);
  Recorder(0, 2, folder, 1).write("x");
  std::filesystem::resize_file(folder.path / "0.flight", 3000);
  CHECK_THROWS_WITH_AS(
      read_flights(folder.path),
      fmt::format(
          "{}/0.flight is not a flight recorder's file, or is cut off, or is of another version",
          path)
          .c_str(),
      Error);
  std::ofstream(folder.path / "0.flight") << "short";
  CHECK_THROWS_WITH_AS(
      read_flights(folder.path),
      fmt::format("{}/0.flight is not a flight recorder's file, or is cut off", path).c_str(),
      Error);
}

TEST_CASE("records of earlier jobs in the folder are left out, and named") {
  const Folder folder;
  constexpr std::int64_t hour = 3600ll * 1'000'000'000;
  // Moves a record to the past, with all of its calls.
  const auto make_older = [&](const char* name, std::int64_t by_ns) {
    std::string bytes = read_file(folder.path / name);
    std::vector<std::size_t> places{offsetof(FlightHeader, written_ns)};
    for (std::size_t i = 0; i < FlightRecorder::capacity; ++i)
      places.push_back(sizeof(FlightHeader) + i * sizeof(FlightEntry) +
                       offsetof(FlightEntry, began_ns));
    for (const std::size_t place : places) {
      std::int64_t time = 0;
      std::memcpy(&time, bytes.data() + place, sizeof time);
      time -= time == 0 ? 0 : by_ns;
      std::memcpy(bytes.data() + place, &time, sizeof time);
    }
    std::ofstream(folder.path / name, std::ios::binary) << bytes;
  };
  for (const int rank : {4, 5}) Recorder(rank, 8, folder, 3).write("x");  // of an old job of 8
  make_older("4.flight", 30 * hour), make_older("5.flight", 30 * hour);
  Recorder(3, 4, folder, 9).write("x");  // rank 3 left no record today, but half an hour ago
  make_older("3.flight", hour / 2);
  for (const int rank : {0, 1, 2}) Recorder(rank, 4, folder, 2).write("rank 3 is gone");
  make_older("2.flight", 5'000'000'000);  // a clock that is slow
  Recorder(6, 8, folder, 0).write("x");   // at the same time, of another size
  make_older("6.flight", 1'000'000'000);
  std::string left_out;
  const auto flights = read_flights(folder.path, &left_out);
  REQUIRE(flights.size() == 3);
  CHECK(
      contains(postmortem(flights), "All that left a record made the same calls: look at rank 3."));
  CHECK(left_out ==
        "\nLeft out:\n"
        "  6.flight is of another job of 8 ranks, 0.0 min earlier\n"
        "  3.flight is of another job, 30.0 min earlier\n"
        "  5.flight is of another job of 8 ranks, 30.0 h earlier\n"
        "  4.flight is of another job of 8 ranks, 30.0 h earlier\n");
}

TEST_CASE("two records of one rank are refused") {
  const Folder folder;
  for (const int rank : {0, 1}) Recorder(rank, 2, folder, 1).write("x");
  CHECK(read_flights(folder.path).size() == 2);
  std::filesystem::copy_file(folder.path / "1.flight", folder.path / "1-copy.flight");
  CHECK_THROWS_WITH_AS(
      read_flights(folder.path),
      fmt::format("{} holds two records of rank 1: leave one of them there", folder.path.string())
          .c_str(),
      Error);
}

TEST_CASE("a postmortem begins with the verdict, and numbers all ranks as in the job") {
  // dp=2,tp=2: the rows are the ranks 0, 1 and 2, 3, the columns 0, 2 and 1, 3. Rank 3 is killed.
  // Rank 1 waits for it in a column, rank 2 in a row, and rank 0 for rank 1 in a row: rank 1 is
  // late there, but it waits itself.
  const Folder folder;
  const auto record = [&](int rank, int place, const char* group, int calls, bool waits) {
    FlightRecorder recorder(place, 2, folder.path, group);
    recorder.set_mesh("dp=2,tp=2");
    for (int i = 1; i <= calls; ++i) {
      recorder.begin(static_cast<std::uint64_t>(i), all_reduce_of(100), 2);
      recorder.end(FlightEntry::done);
    }
    if (waits) {
      recorder.begin(static_cast<std::uint64_t>(calls + 1), all_reduce_of(100), 2).waiting_for =
          1 - place;
      recorder.end(FlightEntry::failed);
    }
    recorder.write(fmt::format("rank {} had waited", rank).c_str());
  };
  record(0, 0, "split2.color0@0,1", 4, true);
  record(1, 1, "split2.color0@0,1", 4, false);
  record(1, 0, "split1.color1@1,3", 7, true);
  record(2, 0, "split2.color2@2,3", 4, true);
  for (const int rank : {0, 2}) record(rank, rank / 2, "split1.color0@0,2", 7, false);
  for (int rank = 0; rank < 3; ++rank) Recorder(rank, 4, folder, 2).write("gave up");
  const auto text = postmortem(read_flights(folder.path));
  CAPTURE(text);
  CHECK(text.starts_with(
      "In sub-group split1.color1 (ranks 1,3 of the job): All that left a record made the same "
      "calls: look at rank 3 (dp=1,tp=1).\n\nFirst to write, rank 0 (dp=0,tp=0): rank 0 had "
      "waited\n\nrank 0   had ended call #2"));
  CHECK(contains(text, "\nrank 3 left no record: killed, or stuck, or on another host\n"));
  CHECK(contains(text,
                 "\nSub-group split1.color1 (ranks 1,3 of the job):\nrank 1 (dp=0,tp=1) "
                 "failed in call #8, all_reduce of 100 fp32"));
  CHECK(contains(text, "waiting for rank 3 (dp=1,tp=1)\nrank 3 (dp=1,tp=1) left no record"));
  CHECK(contains(text, "\nrank 1 (dp=0,tp=1) had ended call #4"));
  CHECK_FALSE(contains(text, "Sub-group split1.color0"));
  CHECK(text.ends_with("\nIn 1 sub-group no call was under way.\n"));
}

TEST_CASE("a postmortem blames no rank that waits in another sub-group") {
  // pp=2,dp=2: rank 0 waits for rank 2, which waits for rank 3, and gives up first.
  const Folder folder;
  const auto fails = [&](int place, const char* group, const char* cause) {
    FlightRecorder recorder(place, 2, folder.path, group);
    recorder.set_mesh("pp=2,dp=2");
    recorder.begin(2, all_reduce_of(100), 2).waiting_for = 1 - place;
    recorder.end(FlightEntry::failed);
    recorder.write(cause);
  };
  fails(1, "split1.color0@2,0", "nothing came from rank 2");
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the order is that of their times
  fails(0, "split2.color2@2,3", "nothing came from rank 3");
  const auto text = postmortem(read_flights(folder.path));
  CAPTURE(text);
  CHECK(text.starts_with(
      "In sub-group split2.color2 (ranks 2,3 of the job): All that left a record made the same "
      "calls: look at rank 3 (pp=1,dp=1).\n\nFirst to write, rank 0 (pp=0,dp=0): nothing came from "
      "rank 2\n"));
  CHECK(contains(text, "\nrank 2 (pp=1,dp=0) left no record here, only of other groups\n"));
  CHECK(contains(text, "\nrank 3 (pp=1,dp=1) left no record: killed, or stuck"));
}

TEST_CASE("a postmortem tells of a circle of waits through several groups") {
  const Folder folder;
  const auto waits = [&](int place, const char* group) {
    FlightRecorder recorder(place, 2, folder.path, group);
    recorder.begin(1, all_reduce_of(100), 2).waiting_for = 1 - place;
    recorder.end(FlightEntry::failed);
    recorder.write("nothing came");
  };
  waits(0, "split1.color0@0,1");
  waits(0, "split2.color0@1,2");
  waits(0, "split3.color0@2,0");
  CHECK(postmortem(read_flights(folder.path))
            .starts_with("Ranks wait for each other in a circle: rank 0 for rank 1, rank 1 for "
                         "rank 2, rank 2 for rank 0.\n"));
}

TEST_CASE("a postmortem has a section for each sub-group") {
  const Folder folder;
  Recorder world(0, 2, folder, 3);
  FlightRecorder part(0, 1, folder.path, "split1.color7");
  part.begin(1, all_reduce_of(10), 2);
  for (FlightRecorder* recorder : {static_cast<FlightRecorder*>(&world), &part})
    recorder->write("asked for by SIGUSR1");
  CHECK(std::filesystem::exists(folder.path / "split1.color7.0.flight"));
  const auto text = postmortem(read_flights(folder.path));
  CAPTURE(text);
  CHECK(contains(text, "rank 0   had ended call #3, all_reduce of 100 fp32"));
  CHECK(contains(text, "rank 1 left no record"));
  CHECK(contains(text,
                 "\nSub-group split1.color7, by its own numbers of ranks:\nrank 0   was in call "
                 "#1, all_reduce of 10 fp32"));
}
