#include "base/memory.hpp"

#include <vector>

#include <doctest/doctest.h>

#include "tests/transformer/temporary_directory.hpp"

using ringside::available_memory;

namespace {

constexpr const char* meminfo =
    "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n";

}  // namespace

TEST_CASE("this machine has memory") {
  REQUIRE(available_memory().has_value());
  CHECK(*available_memory() > 1'000'000);
}

TEST_CASE("without control groups MemAvailable is what is available") {
  TemporaryDirectory root;
  CHECK_FALSE(available_memory(root.path()).has_value());
  root.write("proc/meminfo", meminfo);
  CHECK(available_memory(root.path()) == 600 * 1024);
}

TEST_CASE("the tightest control group of version 2 is the limit") {
  TemporaryDirectory root;
  root.write("proc/meminfo", meminfo);
  root.write("proc/self/cgroup", "0::/jobs/7\n");
  root.write("sys/fs/cgroup/jobs/7/memory.max", "max\n");
  root.write("sys/fs/cgroup/jobs/7/memory.current", "5000\n");
  CHECK(available_memory(root.path()) == 600 * 1024);
  root.write("sys/fs/cgroup/jobs/memory.max", "100000\n");
  root.write("sys/fs/cgroup/jobs/memory.current", "70000\n");
  CHECK(available_memory(root.path()) == 30000);
  root.write("sys/fs/cgroup/jobs/memory.stat", "anon 60000\ninactive_file 10000\n");
  CHECK(available_memory(root.path()) == 40000);
  root.write("sys/fs/cgroup/jobs/memory.current", "170000\n");
  CHECK(available_memory(root.path()) == 0);
}

TEST_CASE("in a container whose path is not visible the top control group is the limit") {
  TemporaryDirectory root;
  root.write("proc/self/cgroup", "0::/not/visible/here\n");
  root.write("sys/fs/cgroup/memory.max", "5000\n");
  CHECK(available_memory(root.path()) == 5000);
}

TEST_CASE("a control group of version 1 is a limit too") {
  TemporaryDirectory root;
  root.write("proc/meminfo", meminfo);
  root.write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a\n");
  root.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n");
  root.write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1000\n");
  CHECK(available_memory(root.path()) == 4000);
}

TEST_CASE("peak resident memory grows with the memory that a process touches") {
  TemporaryDirectory root;
  CHECK_FALSE(ringside::peak_resident_memory(root.path()).has_value());
  root.write("proc/self/status",
             "Name:\tringside\nVmPeak:\t   900 kB\nVmHWM:\t   500 kB\nVmRSS:\t   400 kB\n");
  CHECK(ringside::peak_resident_memory(root.path()) == 500 * 1024);
  constexpr std::size_t size = 100'000'000;
  const auto before = ringside::peak_resident_memory();
  REQUIRE(before.has_value());
  { const std::vector<char> touched(size, 1); }
  CHECK(*ringside::peak_resident_memory() > *before + size / 2);
}
