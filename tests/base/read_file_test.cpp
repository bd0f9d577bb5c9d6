#include "base/read_file.hpp"

#include <cerrno>
#include <fstream>
#include <thread>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "base/error.hpp"
#include "tests/text.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside;

TEST_CASE("a file is read to its last byte, whatever its size") {
  const TemporaryDirectory directory;
  for (const std::size_t size : {0, 1, 4094, 4095, 4096, 4097, 100'000}) {
    CAPTURE(size);
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * i);
    CHECK((read_file(directory.write("bytes", bytes)) == bytes));
  }
}

TEST_CASE("pipes and files of /proc, whose size is not known, are read to their end") {
  CHECK(tests::contains(read_file("/proc/self/status"), "\nPid:\t"));
  const TemporaryDirectory directory;
  const auto pipe = directory.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::thread writer([&] { std::ofstream(pipe) << std::string(50'000, 'a') << "end"; });
  const std::string bytes = read_file(pipe);
  writer.join();
  CHECK(bytes.size() == 50'003);
  CHECK(bytes.ends_with("aend"));
}

TEST_CASE("what cannot be read is an Error with its path and the reason, or nothing") {
  const TemporaryDirectory directory;
  const std::string folder = directory.path().string();
  CHECK_THROWS_WITH_AS(read_file("/nowhere/a"), "cannot read /nowhere/a: No such file or directory",
                       Error);
  CHECK_THROWS_WITH_AS(read_file(folder, "the schedule in"),
                       ("cannot read the schedule in " + folder + ": Is a directory").c_str(),
                       Error);
  CHECK(!read_if_possible("/nowhere/a"));
  CHECK(errno == ENOENT);
}
