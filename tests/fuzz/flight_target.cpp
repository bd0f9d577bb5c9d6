// Fuzzes the reader of flight records, and the post-mortem that explains them.
#include "tests/fuzz/safetensors.hpp"

#include "base/error.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"
#include "tests/transformer/temporary_directory.hpp"

namespace {

using namespace ringside::collectives;

bool accepted = false;

// What rank `rank` of three writes after `calls` calls, the last of which failed.
std::string record_of(int rank, int calls) {
  const TemporaryDirectory directory;
  FlightRecorder recorder(rank, 3, directory.path());
  for (int i = 1; i <= calls; ++i) {
    Call call;
    call.collective = i % 2 == 0 ? Collective::barrier : Collective::all_reduce;
    call.count = 100;
    recorder.begin(static_cast<std::uint64_t>(i), call, 4);
    recorder.progress(2, (rank + 1) % 3, 400);
    recorder.end(i == calls ? FlightEntry::failed : FlightEntry::done);
  }
  recorder.write("rank 1 is gone");
  std::ifstream file(directory.path() / (std::to_string(rank) + ".flight"), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TemporaryDirectory directory;
  accepted = false;
  directory.write("0.flight", std::string(reinterpret_cast<const char*>(data), size));
  try {
    const auto flights = read_flights(directory.path());
    accepted = !postmortem(flights).empty();
  } catch (const ringside::Error&) {
  }
  return 0;
}

namespace ringside::fuzz {

bool was_accepted() {
  return accepted;
}

std::vector<std::string> good_inputs() {
  return {record_of(0, 3), record_of(2, 300), record_of(1, 0)};
}

std::vector<std::string> words() {
  return {std::string(4, '\0'),
          std::string(4, '\xff'),
          std::string(8, '\0'),
          std::string(8, '\xff'),
          std::string("\xff\xff\xff\x7f", 4),
          std::string(64, 'x'),
          "\x1b[2J"};
}

void repair(std::string&) {}

}  // namespace ringside::fuzz
