// A rehearsal of the first minutes on a GPU: the archive of tools/gpu-check, packed and unpacked,
// runs its every step with the stand-in in place of the driver. One step hangs and one crashes;
// what was measured before is in the folder of --out.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include <doctest/doctest.h>
#include <elf.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/read_file.hpp"
#include "cli/pictures/json_file.hpp"
#include "tests/cli/run_program.hpp"

using namespace ringside::testing;
using ringside::Json;
using ringside::Seconds;

namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  const fs::path path = fs::temp_directory_path() / fmt::format("ringside-rehearsal-{}", getpid());
};

void write_script(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "#!/bin/bash\n" << text;
  fs::permissions(path, fs::perms::owner_all);
}

// The programs of the stand-in search libraries in their RPATH, before LD_LIBRARY_PATH; those that
// are packed on a real machine have a RUNPATH, which comes after it. Copies a program so changed.
void copy_with_runpath(const fs::path& from, const fs::path& to) {
  std::string bytes = read_file(from.string());
  const auto* const head = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  const auto* const segments = reinterpret_cast<const Elf64_Phdr*>(bytes.data() + head->e_phoff);
  for (int i = 0; i < head->e_phnum; ++i) {
    if (segments[i].p_type != PT_DYNAMIC) continue;
    auto* entry = reinterpret_cast<Elf64_Dyn*>(bytes.data() + segments[i].p_offset);
    for (; entry->d_tag != DT_NULL; ++entry)
      if (entry->d_tag == DT_RPATH) entry->d_tag = DT_RUNPATH;
  }
  fs::create_directories(to.parent_path());
  std::ofstream(to, std::ios::binary) << bytes;
  fs::permissions(to, fs::perms::owner_all);
}

// In place of the program in the archive: `kernels bf16` hangs and `all_reduce` crashes, each as
// soon as its first figures are written.
constexpr const char* faulty_program = R"(
file="" before=""
for argument; do [ "$before" != --json ] || file=$argument; before=$argument; done
case "$* " in
  "bench kernels "*" bf16 "*) signal=STOP ;;
  "bench all_reduce "*" two_shot,ring "*) signal=KILL ;;
  *) exec "$0.real" "$@" ;;
esac
"$0.real" "$@" &
until grep -q time_us "$file" 2>/dev/null; do sleep 0.01; done
kill -$signal $!
wait $!
)";

}  // namespace

TEST_CASE("rehearsal: the archive's steps run, and a step that hangs or crashes costs no figures") {
  const Folder folder;
  const fs::path build = folder.path / "build", bare = folder.path / "bare",
                 archive = bare / "ringside-gpu-check", out = folder.path / "out";
  copy_with_runpath(ringside_binary, build / "bin" / "ringside");
  copy_with_runpath(ringside_binary + "-bench", build / "bin" / "ringside-bench");
  copy_with_runpath(STANDIN_TENSORS_TEST, build / "tests" / "test_device_cuda");
  const auto packed = run_program({RINGSIDE_GPU_CHECK, "--pack", "--binaries", build.string(),
                                   "--out", (folder.path / "pack").string()},
                                  {{"PATH", std::getenv("PATH")}}, Seconds(200));
  CAPTURE(packed.err);
  REQUIRE(packed.exit_code == 0);
  fs::create_directories(bare);
  REQUIRE(run_program({"tar", "-xzf", (folder.path / "pack" / "ringside-gpu-check.tar.gz").string(),
                       "-C", bare.string()})
              .exit_code == 0);
  fs::remove_all(build);
  fs::rename(archive / "bin" / "ringside", archive / "bin" / "ringside.real");
  write_script(archive / "bin" / "ringside", faulty_program);

  // Beside the archive, what a machine with a GPU has: tools of the driver, compute-sanitizer, and
  // a Python whose wheels hold cuBLAS.
  write_script(bare / "path" / "nvidia-smi",
               "case $1 in --list-gpus) echo 'GPU 0: S';; *) echo 'Stand-in, 1';; esac\n");
  write_script(bare / "path" / "ldconfig", "echo libnccl.so.2\n");
  write_script(bare / "path" / "compute-sanitizer",
               "case \"$*\" in *racecheck*kernel_substring*) exit 8;; *racecheck*) ;;\n"
               "  *kernel_substring=ringside*) ;; *) exit 8;; esac\n"
               "while [ \"$1\" != env ]; do shift; done\nexec \"$@\"\n");
  const fs::path wheel = bare / "site-packages" / "nvidia" / "cublas" / "lib";
  fs::create_directories(wheel);
  fs::create_symlink(STANDIN_CUBLAS, wheel / "libcublas.so.13");
  const std::string path = fmt::format("{}:{}", (bare / "path").string(), std::getenv("PATH"));
  const auto outcome = run_program(
      {(archive / "gpu-check").string(), "--small", "--limit", "45", "--out", out.string()},
      {{"PATH", path}, {"PYTHONPATH", (bare / "site-packages").string()}}, Seconds(800));
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.survivors == "");

  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(out)) files += entry.is_regular_file();
  CHECK(files == 2);
  const Json json = Json::parse(ringside::read_file(out / "gpu-check.json"));
  CHECK(contains(json.at("libraries").get<std::string>(),
                 "libcublas.so.13: " + wheel.string() + "; libnccl.so.2: ldconfig"));
  std::string results;
  for (const Json& step : json.at("steps"))
    if (!step.at("name").get<std::string>().starts_with("pytorch "))
      results += fmt::format("{}: {}\n", step.at("name").get<std::string>(),
                             step.at("result").get<std::string>());
  CHECK(results ==
        "tests test_device_cuda: ok\nkernels bf16: FAILED\nkernels fp32: ok\n"
        "all_reduce: FAILED\nall_reduce packets: ok\ntraining step: ok\nstrategies: ok\n"
        "all_reduce gpus: not run\nall_reduce nccl: not run\nmemcheck kernels: ok\n"
        "racecheck kernels: ok\nsynccheck kernels: ok\nmemcheck train: ok\n");
  CHECK(contains(json.at("steps").at(1).at("note").get<std::string>(), "stopped after its limit"));
  CHECK(contains(json.at("steps").at(3).at("note").get<std::string>(), "exit 137"));
  CHECK(json.at("kernels_bf16").at(0).at("kernel") == "copy");
  CHECK(json.at("kernels_fp32").size() == 19);
  CHECK(json.at("all_reduce").at(0).at("time_us").get<double>() > 0);
  CHECK(json.at("all_reduce_packets").size() == 12);

  // The part for several GPUs, on two.
  write_script(bare / "path" / "nvidia-smi",
               "case $1 in --list-gpus) printf 'GPU 0: S\\nGPU 1: S\\n';; *) echo 'Stand-in, 1';; "
               "esac\n");
  fs::create_symlink(STANDIN_CUBLAS, wheel / "libnccl.so.2");
  write_script(bare / "path" / "ldconfig", "true\n");
  const auto on_two = run_program(
      {(archive / "gpu-check").string(), "--small", "--only", "gpus", "--out", out.string()},
      {{"PATH", path},
       {"PYTHONPATH", (bare / "site-packages").string()},
       {"RINGSIDE_STANDIN_DEVICES", "2"}},
      Seconds(400));
  CAPTURE(on_two.out);
  CAPTURE(on_two.err);
  CHECK(on_two.exit_code == 0);
  for (const char* line : {"topology: ok", "all_reduce gpus: ok", "all_reduce nccl: ok",
                           "busbw of NCCL in GB/s", "size (B)             4000      64000"})
    CHECK(contains(on_two.out, line));
  const std::string number = "( +[0-9]+[.][0-9]+){2}\n";
  for (const char* choice : {"its own choice", "Ring LL128", "Tree Simple"}) {
    CAPTURE(choice);
    CHECK(std::regex_search(on_two.out, std::regex(choice + number)));
  }
  const Json of_two = Json::parse(ringside::read_file(out / "gpu-check.json"));
  CHECK(of_two.at("all_reduce_nccl_Ring_LL128").size() == 4);  // two sizes, in two places
  CHECK(of_two.at("all_reduce_gpus").size() == 8);             // auto, two_shot, ring and nccl
  CHECK(of_two.at("all_reduce_nccl_memory").size() == 8);      // auto, and NCCL three times
  CHECK(of_two.at("all_reduce_graphs").size() == 8);
}
