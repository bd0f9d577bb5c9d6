#include "base/atomic_file.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "tests/text.hpp"
#include "tests/transformer/temporary_directory.hpp"

using ringside::AtomicFile;
using ringside::read_file;

namespace {

int files_in(const std::filesystem::path& directory) {
  int count = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

}  // namespace

TEST_CASE("commit replaces the old file and leaves no other") {
  const TemporaryDirectory directory;
  const auto path = directory.write("model", "old");
  AtomicFile file(path);
  file.write("new ");
  file.write("bytes");
  CHECK(read_file(path) == "old");
  file.commit();
  CHECK(read_file(path) == "new bytes");
  CHECK(files_in(directory.path()) == 1);
}

TEST_CASE("a file that is not committed leaves the old one as it was") {
  const TemporaryDirectory directory;
  const auto path = directory.write("model", "old");
  {
    AtomicFile file(path);
    file.write("half of the n");
  }
  CHECK(read_file(path) == "old");
  CHECK(files_in(directory.path()) == 1);
}

TEST_CASE("a file in a directory that does not exist is an Error with its path") {
  const TemporaryDirectory directory;
  const std::string path = (directory.path() / "missing" / "model").string();
  CHECK_THROWS_WITH_AS(AtomicFile{path},
                       ("cannot write " + path + ": No such file or directory").c_str(),
                       ringside::Error);
}
