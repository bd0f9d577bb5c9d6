// A small fuzzer: it mutates valid inputs for a limited time. The same seed gives the same inputs.
//
//   fuzz_wire [SECONDS [SEED]]     default: 2 seconds, seed 1
//   fuzz_wire FILE                 repeats one input
//
// The current input is in fuzz_wire.PID.input, in the folder for temporary files. If it crashes the
// program, the file stays.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "collectives/bootstrap/handshake.hpp"
#include "collectives/diagnostics/call_history.hpp"
#include "collectives/diagnostics/control_message.hpp"
#include "collectives/transport/message_header.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using namespace ringside;
using namespace ringside::collectives;

constexpr std::size_t longest_input = 16 * 1024;

template <class T>
std::string bytes_of(const T& words) {
  return std::string(reinterpret_cast<const char*>(&words), sizeof words);
}

// One valid input of each kind. The first byte selects the parser.
std::vector<std::string> seeds() {
  Call call;
  call.collective = Collective::broadcast;
  call.count = 1000;
  call.label = Label("model.norm.weight");
  MessageHeader header;
  header.call = call;
  Handshake handshake;
  handshake.key = hash_of("fuzz");
  CallHistory history;
  for (std::uint64_t n = 1; n <= 60; ++n) history.add(n, call);
  ControlMessage position, cause, goodbye;
  position.kind = ControlMessage::position;
  position.text = history.bytes();
  cause.kind = ControlMessage::gave_up;
  cause.text = "rank 2 is gone";
  Answer table, refusal;
  table.bytes = 4 * sizeof(Address);
  refusal.kind = Answer::refusal;
  refusal.bytes = 5;
  return {std::string(1, '\0') + bytes_of(MessageHeader{}),
          std::string(1, '\0') + bytes_of(header),
          "\1" + bytes_of(handshake),
          "\1" + bytes_of(table) + std::string(4 * sizeof(Address), '1'),
          "\1" + bytes_of(refusal) + "no 12",
          "\2" + to_bytes(position) + to_bytes(goodbye) + to_bytes(cause),
          "\2" + to_bytes(cause),
          "\3node[03-07,9],login",
          "\3"
          "2(x3),1",
          "\3"
          "29500",
          "\3[fd00::1]"};
}

class Chance {
 public:
  explicit Chance(std::uint64_t seed) : seed_(seed) {}
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_below(n, seed_, 0, counter_++); }

 private:
  std::uint64_t seed_, counter_ = 0;
};

void change(std::string& input, Chance& chance) {
  const std::size_t at = chance.below(input.size());
  switch (chance.below(7)) {
    case 0:
      input[at] = static_cast<char>(input[at] ^ (1 << chance.below(8)));
      break;
    case 1:
      input[at] = static_cast<char>(chance.below(256));
      break;
    case 2:
      input[at] = chance.below(2) == 0 ? '\0' : '\xff';
      break;
    case 3:
      input.resize(1 + at);
      break;
    case 4:
      input.erase(at, chance.below(16));
      break;
    case 5:
      input.insert(at, input.substr(chance.below(input.size()), chance.below(128)));
      break;
    default:
      for (std::size_t n = chance.below(8); n > 0 && at + n < input.size(); --n)
        input[at + n] = static_cast<char>(chance.below(256));
  }
  if (input.empty()) input.push_back('\0');
  if (input.size() > longest_input) input.resize(longest_input);
}

void try_input(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

// A file that holds the current input. It is mapped, so an input needs no system call.
class CurrentInput {
 public:
  explicit CurrentInput(std::string path) : path_(std::move(path)) {
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    require(fd >= 0 && ::ftruncate(fd, sizeof(std::uint64_t) + longest_input) == 0,
            "cannot write {}", path_);
    void* memory = ::mmap(nullptr, sizeof(std::uint64_t) + longest_input, PROT_READ | PROT_WRITE,
                          MAP_SHARED, fd, 0);
    ::close(fd);
    require(memory != MAP_FAILED, "cannot map {}", path_);
    memory_ = static_cast<char*>(memory);
  }
  ~CurrentInput() { std::filesystem::remove(path_); }
  CurrentInput(const CurrentInput&) = delete;
  CurrentInput& operator=(const CurrentInput&) = delete;

  void hold(const std::string& input) {
    const std::uint64_t size = input.size();
    std::memcpy(memory_, &size, sizeof size);
    input.copy(memory_ + sizeof size, input.size());
  }

 private:
  std::string path_;
  char* memory_ = nullptr;
};

void try_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t size = 0;
  file.read(reinterpret_cast<char*>(&size), sizeof size);
  std::string input((std::istreambuf_iterator<char>(file)), {});
  input.resize(std::min<std::size_t>(size, input.size()));
  try_input(input);
}

void fuzz(double seconds, std::uint64_t seed) {
  const auto corpus = seeds();
  CurrentInput current(
      (std::filesystem::temp_directory_path() / fmt::format("fuzz_wire.{}.input", ::getpid()))
          .string());
  Chance chance(seed);
  std::uint64_t inputs = 0;
  for (const auto deadline = Deadline::after(Seconds(seconds)); !deadline.expired(); ++inputs) {
    std::string input = corpus[inputs % corpus.size()];
    for (std::size_t changes = inputs < corpus.size() ? 0 : 1 + chance.below(8); changes > 0;
         --changes)
      change(input, chance);
    current.hold(input);
    try_input(input);
  }
  fmt::print("{} inputs in {} s, seed {}: nothing found\n", inputs, seconds, seed);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::filesystem::exists(argv[1])) {
    try_file(argv[1]);
    return 0;
  }
  fuzz(argc > 1 ? std::atof(argv[1]) : 2, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
}
