#include "base/system/fork.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/system/file_descriptor.hpp"

using namespace ringside;

namespace {

// The number that `body` returns in a child made by fork(); -1 if a signal ended the child.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// 's' socket, 'n' the null device, '-' closed, '?' anything else
int kind_of(int descriptor) {
  struct stat file {
  }, null{};
  if (::fstat(descriptor, &file) != 0) return '-';
  ::stat("/dev/null", &null);
  return S_ISSOCK(file.st_mode) ? 's' : file.st_rdev == null.st_rdev ? 'n' : '?';
}

struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    one = FileDescriptor(ends[0]);
    other = FileDescriptor(ends[1]);
  }
  FileDescriptor one, other;
};

}  // namespace

TEST_CASE("a child has the null device in place of a descriptor that is kept from it") {
  Pair pair;
  keep_from_children(pair.one.get());
  CHECK((::fcntl(pair.one.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(in_child([&] { return kind_of(pair.one.get()); }) == 'n');
  CHECK(in_child([&] { return kind_of(pair.other.get()); }) == 's');
  CHECK(in_child([&] { return ::fcntl(pair.one.get(), F_GETFD); }) == FD_CLOEXEC);
  CHECK(in_child([&] { return in_child([&] { return kind_of(pair.one.get()); }); }) == 'n');
  CHECK(kind_of(pair.one.get()) == 's');

  // The other side learns of the end, although a child lives on.
  std::array<int, 2> gate{};
  REQUIRE(::pipe(gate.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(gate[1]);
    char end = 0;
    ::_exit(static_cast<int>(::read(gate[0], &end, 1)));
  }
  pair.one.close();
  char byte = 0;
  bool closed = false;
  for (int i = 0; i < 1000 && !closed; ++i, ::usleep(1000))
    closed = ::recv(pair.other.get(), &byte, 1, MSG_DONTWAIT) == 0;
  CHECK(closed);
  ::close(gate[0]);
  ::close(gate[1]);
  CHECK(::waitpid(child, nullptr, 0) == child);
}

TEST_CASE("a number that was closed and used again belongs to the new file") {
  Pair first;
  const int number = first.one.get();
  keep_from_children(number);
  first.one.close();
  CHECK(in_child([&] { return kind_of(number); }) == '-');
  Pair second;
  REQUIRE(second.one.get() == number);
  CHECK(in_child([&] { return kind_of(number); }) == 's');
  keep_from_children(number);
  CHECK(in_child([&] { return kind_of(number); }) == 'n');
  keep_from_children(-1);
  keep_from_children(1 << 20);  // not open: nothing to keep
  CHECK(in_child([] { return kind_of(1 << 20); }) == '-');
}

TEST_CASE("a process may fork while other threads open and close what is kept from children") {
  std::atomic<bool> over = false;
  std::array<std::thread, 3> threads;
  for (auto& each : threads)
    each = std::thread([&] {
      while (!over) {
        const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        keep_from_children(socket.get());
      }
    });
  const Pair pair;
  keep_from_children(pair.one.get());
  int right = 0;
  for (int i = 0; i < 100; ++i) right += in_child([&] { return kind_of(pair.one.get()); }) == 'n';
  over = true;
  for (auto& each : threads) each.join();
  CHECK(right == 100);
}

TEST_CASE("what a process owns, its child neither uses nor destroys") {
  struct Object {
    explicit Object(int& count) : destroyed(count) {}
    ~Object() { ++destroyed; }
    int& destroyed;
  };
  int destroyed = 0;
  std::unique_ptr<Object, DeleteInOwner<Object>> object(new Object(destroyed));
  const OwnerProcess owner;
  CHECK(owner.is_this());
  CHECK_NOTHROW(owner.require_this());
  const std::string parent = std::to_string(::getpid());
  CHECK(in_child([&] {
          object.reset();
          if (owner.is_this() || destroyed != 0 || !OwnerProcess().is_this()) return 1;
          try {
            owner.require_this();
            return 2;
          } catch (const Error& error) {
            const std::string child = std::to_string(::getpid());
            return error.what() == "process " + parent + " made this group, and process " + child +
                                       " is its child, which has neither the threads nor the "
                                       "connections of the group: call it in process " +
                                       parent + ", or make a group in the child"
                       ? 0
                       : 3;
          }
        }) == 0);
  object.reset();
  CHECK(destroyed == 1);
}
