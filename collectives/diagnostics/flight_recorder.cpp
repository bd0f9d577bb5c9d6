#include "collectives/diagnostics/flight_recorder.hpp"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>
#include <ctime>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"

namespace ringside::collectives {
namespace {

std::int64_t now_ns() {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

bool write_all(int fd, const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, from, bytes);
    if (n <= 0) return false;
    from += n, bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

// The recorders of this process: one for each rank that lives in it. A signal handler reads the
// array, so it has a fixed size and no lock.
constexpr std::size_t most_recorders = 128;
std::array<std::atomic<FlightRecorder*>, most_recorders> recorders{};
std::atomic<int> handlers_running{0};

void on_signal(int) {
  const int error = errno;
  ++handlers_running;
  for (auto& recorder : recorders)
    if (const FlightRecorder* r = recorder.load()) r->write_on_request("asked for by SIGUSR1");
  --handlers_running;
  errno = error;
}

void add_recorder(FlightRecorder* recorder) {
  for (auto& entry : recorders) {
    FlightRecorder* none = nullptr;
    if (entry.compare_exchange_strong(none, recorder)) break;
  }
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, nullptr);
}

// A handler on another thread may have loaded the pointer just before: the recorder must live until
// that handler is done. A handler on this thread runs to its end before this function continues.
void remove_recorder(FlightRecorder* recorder) {
  for (auto& entry : recorders) {
    FlightRecorder* expected = recorder;
    entry.compare_exchange_strong(expected, nullptr);
  }
  while (handlers_running.load() > 0) std::this_thread::yield();
}

// Keeps the first 16 ranks of a sub-group's name.
std::string shortened(std::string_view name) {
  std::size_t end = name.find('@');
  for (int kept = 0; end < name.size() && kept < 16; ++kept) end = name.find(',', end + 1);
  return end < name.size() ? fmt::format("{}...", name.substr(0, end)) : std::string(name);
}

}  // namespace

std::vector<int> ranks_of_sub_group(std::string_view name) {
  std::vector<int> ranks;
  for (std::size_t begin = name.find('@'); begin < name.size();) {
    const std::size_t end = std::min(name.find(',', ++begin), name.size());
    std::from_chars(name.data() + begin, name.data() + end, ranks.emplace_back());
    begin = end;
  }
  return ranks;
}

std::string sub_group_in_words(std::string_view full) {
  const std::string name = shortened(full);
  const std::size_t at = name.find('@');
  if (at == std::string::npos) return name;
  return fmt::format("{} (ranks {} of the job)", name.substr(0, at), name.substr(at + 1));
}

FlightRecorder::FlightRecorder(int rank, int size, const std::filesystem::path& folder,
                               std::string_view full_group)
    : folder_(folder.string()) {
  header_.rank = rank;
  header_.size = size;
  header_.pid = ::getpid();
  header_.entries = capacity;
  full_group.copy(header_.group, sizeof header_.group - 1);
  if (folder_.empty()) return;
  const std::string group = shortened(full_group);
  file_ = (folder / fmt::format("{}{}{}.flight", group, group.empty() ? "" : ".", rank)).string();
  add_recorder(this);
}

std::string step_in_words(std::uint32_t step, std::uint32_t steps) {
  const std::uint32_t last = std::max(steps, 1U) - 1;
  return fmt::format("step {} (of 0 to {})", std::min(step, last), last);
}

FlightRecorder::~FlightRecorder() {
  if (!folder_.empty()) remove_recorder(this);
}

FlightEntry& FlightRecorder::begin(std::uint64_t sequence, const Call& call, std::uint32_t steps) {
  ++begun_;
  return now() = {.sequence = sequence, .call = call, .steps = steps, .began_ns = now_ns()};
}

void FlightRecorder::end(FlightEntry::State state) {
  now().state = state;
  if (state == FlightEntry::failed) now().failed_ns = now_ns();
}

void FlightRecorder::set_mesh(std::string_view mesh) {
  mesh.copy(header_.mesh, sizeof header_.mesh - 1);
}

void FlightRecorder::write(const char* cause, int blamed) noexcept {
  if (!failed_.load()) {
    header_.blamed = blamed;
    header_.written_ns = now_ns();
    std::strncpy(header_.cause, cause, sizeof header_.cause - 1);
    failed_.store(true);
  }
  write_file(header_);
}

void FlightRecorder::write_on_request(const char* request) const noexcept {
  if (failed_.load()) return write_file(header_);
  FlightHeader header = header_;
  header.written_ns = now_ns();
  std::strncpy(header.cause, request, sizeof header.cause - 1);
  write_file(header);
}

void FlightRecorder::write_file(const FlightHeader& header) const noexcept {
  if (folder_.empty() || !owner_.is_this()) return;  // a child has the handler of SIGUSR1 too
  ::mkdir(folder_.c_str(), 0777);
  const int fd = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return;  // the rank still reports its failure
  if (write_all(fd, &header, sizeof header)) write_all(fd, entries_.data(), sizeof entries_);
  ::close(fd);
}

}  // namespace ringside::collectives
