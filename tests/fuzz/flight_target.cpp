// Fuzzes the reader of flight records, and the post-mortem that explains them.
#include "base/read_file.hpp"
#include "tests/fuzz/target.hpp"

#include "collectives/diagnostics/flight_recorder.hpp"
#include "tests/transformer/temporary_directory.hpp"

namespace {

using namespace ringside::collectives;

// What rank `rank` of three writes after `calls` calls, the last of which failed.
std::string record_of(int rank, int calls) {
  const TemporaryDirectory directory;
  FlightRecorder recorder(rank, 3, directory.path());
  for (int i = 1; i <= calls; ++i) {
    Call call;
    call.collective = i % 2 == 0 ? Collective::barrier : Collective::all_reduce;
    call.count = 100;
    FlightEntry& entry = recorder.begin(static_cast<std::uint64_t>(i), call, 4);
    entry.step = 2, entry.waiting_for = (rank + 1) % 3, entry.bytes_received = 400;
    recorder.end(i == calls ? FlightEntry::failed : FlightEntry::done);
  }
  recorder.write("rank 1 is gone");
  return ringside::read_file(directory.path() / (std::to_string(rank) + ".flight"));
}

}  // namespace

namespace ringside::fuzz {

bool try_input(const std::string& input) {
  static const TemporaryDirectory directory;
  const bool is_json = input.starts_with('{');
  directory.write(is_json ? "flights.json" : "0.flight", input);
  const auto path = is_json ? directory.path() / "flights.json" : directory.path();
  return accepts([&] { postmortem(read_flights(path)); });
}

std::vector<std::string> good_inputs() {
  return {record_of(0, 3), record_of(2, 300), record_of(1, 0),
          R"({"flights": [{"rank": 0, "size": 2, "group": "tp@0,2", "calls": [
              {"number": 1, "collective": "all_reduce", "count": 8, "type": "bf16", "ended": true},
              {"number": 2, "collective": "send", "count": 8, "type": "bf16", "ended": false,
               "root": 0, "peer": 1, "waiting_for": 1}]}]})"};
}

std::vector<std::string> words() {
  return {std::string(4, '\0'),
          std::string(4, '\xff'),
          std::string(8, '\0'),
          std::string(8, '\xff'),
          std::string("\xff\xff\xff\x7f", 4),
          std::string(64, 'x'),
          "\x1b[2J",
          "{\"rank\":",
          "-1",
          "1e999",
          "[]",
          "@0,1"};
}

void repair(std::string&) {}

}  // namespace ringside::fuzz
