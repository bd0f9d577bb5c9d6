#include "tests/cli/run_program.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

#include <fmt/format.h>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace ringside::testing {
namespace {

constexpr Seconds time_to_vanish{15};  // a killed process disappears soon, but not at once

const std::set<std::string> variables_of_outer_jobs{
    "RANK",         "WORLD_SIZE",           "LOCAL_RANK",          "LOCAL_WORLD_SIZE",
    "NODE_RANK",    "RINGSIDE_FLIGHT_DIR",  "GROUP_RANK",          "MASTER_ADDR",
    "MASTER_PORT",  "RINGSIDE_JOB_KEY",     "RINGSIDE_LISTENING",  "SLURM_PROCID",
    "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};

std::vector<std::string> environment_with(const Variables& variables) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    if (!variables.contains(name) && !variables_of_outer_jobs.contains(name))
      result.push_back(text);
  }
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// The strings of a /proc file, separated by zero bytes; empty if the process has ended.
std::vector<std::string> strings_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> strings;
  for (std::string text; std::getline(file, text, '\0');) strings.push_back(text);
  return strings;
}

// The signals as a shell sets them: a test in the background must not pass on an ignored SIGINT.
void set_default_signals(posix_spawnattr_t& attributes) {
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
}

void take(FileDescriptor& pipe, std::string& text) {
  std::array<char, 64 * 1024> bytes;
  while (pipe.is_open()) {
    const ssize_t got = ::read(pipe.get(), bytes.data(), bytes.size());
    if (got < 0) return;  // nothing to read now
    if (got == 0) return pipe.close();
    text.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

// A test that was moved to another machine is told where the program is.
const std::string ringside_binary = environment("RINGSIDE_BINARY").value_or(RINGSIDE_BINARY);

Program::Program(std::vector<std::string> command, const Variables& variables) {
  static int started = 0;
  mark_ = fmt::format("{}-{}-{}", ::getpid(), ++started, start_.time_since_epoch().count());
  Variables marked = variables;
  marked["RINGSIDE_TEST_MARK"] = mark_;
  auto texts = environment_with(marked);
  cli::Pipe out = cli::make_pipe();
  cli::Pipe err = cli::make_pipe();

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out.write_end.get(), 1);
  posix_spawn_file_actions_adddup2(&files, err.write_end.get(), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  set_default_signals(attributes);
  const int error = ::posix_spawnp(&pid_, command.front().c_str(), &files, &attributes,
                                   pointers(command).data(), pointers(texts).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  require(error == 0, "cannot start {}: {}", command.front(), std::strerror(error));

  cli::make_non_blocking(out.read_end);
  cli::make_non_blocking(err.read_end);
  out_pipe_ = std::move(out.read_end);
  err_pipe_ = std::move(err.read_end);
}

Program::~Program() {
  for (const pid_t pid : processes()) ::kill(pid, SIGKILL);
  if (!ended_) ::waitpid(pid_, nullptr, 0);
}

void Program::send(int signal) const {
  require(!ended_, "the program has ended: there is nothing to send signal {} to", signal);
  ::kill(pid_, signal);
}

bool Program::wait_for(std::string_view text, Seconds limit) {
  const auto deadline = Deadline::after(limit);
  for (;;) {
    const bool last_try = ended() || deadline.expired();
    take_output(last_try ? 0 : 20);
    if (contains(out_, text) || contains(err_, text)) return true;
    if (last_try) return false;
  }
}

Outcome Program::wait(Seconds limit) {
  const auto deadline = Deadline::after(limit);
  while (!ended() && !deadline.expired()) take_output(10);
  Outcome outcome;
  outcome.timed_out = !ended_;
  outcome.seconds = seconds_since(start_);
  if (outcome.timed_out) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status_, 0);
    ended_ = true;
  }
  outcome.survivors = survivors();
  take_output(0);
  outcome.out = out_;
  outcome.err = err_;
  if (WIFEXITED(status_)) outcome.exit_code = WEXITSTATUS(status_);
  if (WIFSIGNALED(status_)) outcome.signal = WTERMSIG(status_);
  return outcome;
}

std::vector<pid_t> Program::processes() const {
  return processes_with({});
}

std::vector<pid_t> Program::processes_of_rank(int rank) const {
  return processes_with({fmt::format("RANK={}", rank)});
}

std::vector<pid_t> Program::processes_with(const std::vector<std::string>& entries) const {
  std::vector<pid_t> result;
  for (const auto& directory : std::filesystem::directory_iterator("/proc")) {
    const std::string name = directory.path().filename();
    if (!std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; }))
      continue;
    const auto environment = strings_of(directory.path() / "environ");
    const auto has = [&](const std::string& entry) {
      return std::find(environment.begin(), environment.end(), entry) != environment.end();
    };
    if (has("RINGSIDE_TEST_MARK=" + mark_) && std::all_of(entries.begin(), entries.end(), has))
      result.push_back(std::stoi(name));
  }
  return result;
}

void Program::take_output(int milliseconds) {
  // poll() ignores a closed pipe (-1).
  std::array<pollfd, 2> pipes{{{out_pipe_.get(), POLLIN, 0}, {err_pipe_.get(), POLLIN, 0}}};
  ::poll(pipes.data(), pipes.size(), milliseconds);
  take(out_pipe_, out_);
  take(err_pipe_, err_);
}

bool Program::ended() {
  if (!ended_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
  return ended_;
}

std::string Program::survivors() const {
  const auto deadline = Deadline::after(time_to_vanish);
  std::vector<pid_t> left = processes();
  for (; !left.empty() && !deadline.expired(); left = processes()) ::usleep(10'000);
  std::string list;
  for (const pid_t pid : left) {
    list += fmt::format("{}: {}\n", pid,
                        fmt::join(strings_of(fmt::format("/proc/{}/cmdline", pid)), " "));
    ::kill(pid, SIGKILL);
  }
  return list;
}

Outcome run_program(std::vector<std::string> command, const Variables& variables, Seconds limit) {
  return Program(std::move(command), variables).wait(limit);
}

bool eventually(const std::function<bool()>& condition) {
  const auto deadline = Deadline::after(Seconds(20));
  while (!condition()) {
    if (deadline.expired()) return false;
    ::usleep(1000);
  }
  return true;
}

std::vector<std::string> sorted_lines(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace ringside::testing
