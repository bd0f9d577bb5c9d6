// A rank for the tests of failures: it joins the job that its environment names, prints "ready",
// and repeats all-reduces of COUNT floats until it is killed, or a call fails, or a sum is wrong.
//
//   all_reduce_worker COUNT [tcp|shm] [forks|executes|early]
//
// With the third argument rank 1 starts a child that outlives it: by fork(), by posix_spawn(), or
// by fork() while the ranks meet.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <spawn.h>
#include <unistd.h>

#include "base/error.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/messages.hpp"
#include "collectives/process_group.hpp"

namespace {

using ringside::collectives::Messages;
using ringside::collectives::ProcessGroup;

// In the child: `call` must not reach the connections of its parent.
template <class Call>
void try_in_child(const char* name, Call call) {
  try {
    call();
    std::printf("%s: no error\n", name);
  } catch (const ringside::Error& error) {
    std::printf("%s: %s\n", name, error.what());
  }
}

[[noreturn]] void live_on() {
  std::printf("child %d\n", ::getpid());
  std::fflush(stdout);
  ::sleep(60);
  std::_Exit(0);
}

void start_child(bool executes, ProcessGroup& group) {
  std::optional<ProcessGroup> half(group.split(0, group.rank()));
  std::optional<Messages> messages(group);
  int number = 0;
  const auto asked = messages->recv(std::span(&number, 1), 0);
  const auto go_on = [&] {
    for (;;) group.all_reduce(std::span(&number, 1));
  };
  if (executes) {  // it shares the memory of its parent until then, so no handler of fork() runs
    std::string shell = "sh", option = "-c", script = "echo child $$; exec sleep 60";
    char* const arguments[] = {shell.data(), option.data(), script.data(), nullptr};
    pid_t pid = 0;
    ringside::require(::posix_spawnp(&pid, "sh", nullptr, nullptr, arguments, environ) == 0,
                      "cannot start sh");
    go_on();
  }
  if (::fork() != 0) go_on();
  try_in_child("barrier", [&] { group.barrier(); });
  try_in_child("barrier_async", [&] { half->barrier_async(); });
  try_in_child("send", [&] { messages->send(std::span(&number, 1), 0); });
  try_in_child("wait", [&] { asked.wait(); });
  std::printf("done: %d\n", asked.done());
  messages->abort("a child has no say");
  group.abort("a child has no say");
  messages.reset();
  half.reset();
  live_on();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bool shm = argc > 2 && std::string_view(argv[2]) == "shm";
    const auto rank_info = ringside::collectives::rank_info_from_environment();
    const std::string_view child = argc > 3 && rank_info.rank == 1 ? argv[3] : "";
    if (child == "early")
      std::thread([] {
        ::usleep(500'000);
        if (::fork() == 0) live_on();
      }).detach();
    auto group = ProcessGroup::over(shm ? "shm" : "tcp", rank_info);
    std::vector<float> x(argc > 1 ? static_cast<std::size_t>(std::atoll(argv[1])) : 1);
    group.barrier();
    std::printf("ready\n");
    std::fflush(stdout);
    if (argc > 3 && child.empty()) {  // as start_child() on rank 1
      const ProcessGroup half = group.split(0, group.rank());
      Messages messages(group);
      for (int number = 0;;) group.all_reduce(std::span(&number, 1));
    }
    if (!child.empty()) start_child(child == "executes", group);
    const int p = group.size();
    const auto right = static_cast<float>(p * (p + 1) / 2);
    for (;;) {
      std::fill(x.begin(), x.end(), static_cast<float>(group.rank() + 1));
      group.all_reduce(std::span(x));
      ringside::require(std::count(x.begin(), x.end(), right) == std::ssize(x), "a wrong sum");
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
