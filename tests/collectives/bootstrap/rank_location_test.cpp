// Who shares a host, a GPU and a process: also on cloned hosts, which have the same names, and in
// containers, which have the same process IDs.
#include <string_view>
#include <thread>

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/bootstrap/rank_location.hpp"

using namespace ringside::collectives;

namespace {

constexpr std::string_view gpu = "0000:1b:00.0";

// The location of a process that is forked, in a process-ID namespace of its own if this is
// possible.
struct LocationOfChild {
  RankLocation location;
  bool in_new_namespace = false;
};

LocationOfChild location_of_child(bool try_new_namespace) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    LocationOfChild its;
    its.in_new_namespace = try_new_namespace && (::unshare(CLONE_NEWPID) == 0 ||
                                                 ::unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0);
    if (its.in_new_namespace) {
      const pid_t inside = ::fork();  // unshare is for processes that are forked from now on
      if (inside > 0) ::_exit(::waitpid(inside, nullptr, 0) == inside ? 0 : 1);
    }
    its.location = location_of_this_process(gpu);
    ::_exit(::write(ends[1], &its, sizeof its) == sizeof its ? 0 : 1);
  }
  ::close(ends[1]);
  LocationOfChild its;
  CHECK(::read(ends[0], &its, sizeof its) == sizeof its);
  ::close(ends[0]);
  CHECK(::waitpid(child, nullptr, 0) == child);
  return its;
}

}  // namespace

TEST_CASE("threads share a process, processes share a host") {
  const RankLocation mine = location_of_this_process(gpu);
  CHECK(std::string_view(mine.host) != "");
  RankLocation of_thread;
  std::thread([&] { of_thread = location_of_this_process("0000:2c:00.0"); }).join();
  CHECK(on_one_host(mine, of_thread));
  CHECK(in_one_process(mine, of_thread));
  CHECK(!on_one_gpu(mine, of_thread));

  const RankLocation of_child = location_of_child(false).location;
  CHECK(on_one_host(mine, of_child));
  CHECK(on_one_gpu(mine, of_child));
  CHECK(know_their_process_ids(mine, of_child));
  CHECK(!in_one_process(mine, of_child));
}

TEST_CASE("cloned hosts have the same name, the same process IDs and the same GPU addresses") {
  const RankLocation mine = location_of_this_process(gpu);
  RankLocation on_clone = mine;
  ++on_clone.boot;
  ++on_clone.proc_domain;  // which is made from it
  CHECK(std::string_view(on_clone.host) == mine.host);
  CHECK(!on_one_host(mine, on_clone));
  CHECK(!on_one_gpu(mine, on_clone));
  CHECK(!know_their_process_ids(mine, on_clone));
  CHECK(!in_one_process(mine, on_clone));
}

TEST_CASE("containers have the same process IDs, and share the host and its GPUs") {
  const RankLocation mine = location_of_this_process(gpu);
  auto [in_container, is_real] = location_of_child(true);
  if (is_real) {
    CHECK(in_container.process == 1);
  } else {
    MESSAGE("this machine lets no process have process IDs of its own: one is made up");
    ++in_container.proc_domain;
  }
  in_container.process = mine.process;
  CHECK(on_one_host(mine, in_container));
  CHECK(on_one_gpu(mine, in_container));
  CHECK(!know_their_process_ids(mine, in_container));
  CHECK(!in_one_process(mine, in_container));
}
