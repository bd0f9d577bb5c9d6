# shellcheck shell=bash
# What ./demo, ./check and .ci/run have in common. Sourced by bash, in the root of the project.

program=$(basename "$0")
log_folder=build/logs
started=$SECONDS

say() { echo "$program: $*"; }

fail() {
  echo "$program: $*" >&2
  exit 1
}

# quietly NAME COMMAND...: runs the command with its output in build/logs/NAME.log; shows the end of that where the command fails.
quietly() {
  local log=$log_folder/$1.log
  shift
  mkdir -p "$log_folder"
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 60 "$log" >&2
    fail "this did not work: $* (the whole output is in $log)"
  fi
}

libraries="libboost-dev libfmt-dev libcli11-dev nlohmann-json3-dev doctest-dev libopenblas-openmp-dev libpcre2-dev"

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# The packages of Debian and Ubuntu that are not there yet. What is found as a command need not come from a package.
missing_packages() {
  command -v c++ >/dev/null || echo g++
  command -v cmake >/dev/null || echo cmake
  command -v ninja >/dev/null || echo ninja-build
  command -v ccache >/dev/null || echo ccache
  local library
  for library in $libraries; do
    case $library in
      libopenblas-*) [ -n "$(find /usr/lib /usr/local/lib -name 'libopenblas.so' -print -quit 2>/dev/null)" ] || echo "$library" ;;
      *) installed "$library" || echo "$library" ;;
    esac
  done
}

install_what_is_missing() {
  local as_root=() missing
  if ! command -v apt-get >/dev/null; then
    for missing in c++ cmake ninja; do
      command -v "$missing" >/dev/null ||
        fail "$missing is missing, and there is no apt here: please install a C++20 compiler, cmake 3.22, ninja, and $libraries"
    done
    return 0
  fi
  missing=$(missing_packages | xargs)
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "please run this as root, or install what is missing: apt-get install $missing"
    sudo true || fail "without sudo, please install what is missing: apt-get install $missing"
    as_root=(sudo)
  fi
  say "installing $missing"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  quietly apt-update "${apt[@]}" update
  # shellcheck disable=SC2086  # a list of words
  quietly apt-install "${apt[@]}" install --yes --no-install-recommends $missing
}

# As many compilers at a time as there are processors, and memory for: the heaviest file takes about a gigabyte.
compile_jobs() {
  local processors gigabytes
  processors=$(nproc)
  gigabytes=$(awk '/^MemAvailable:/ {print int($2 / 1000000)}' /proc/meminfo)
  [ "$gigabytes" -ge 1 ] || gigabytes=1
  echo $((processors < gigabytes ? processors : gigabytes))
}

# build PRESET [TARGET]: configures and builds; in CI a warning is an error. Not under sanitizers, where GCC also warns of what it has put
# into the code itself; the release build has judged the same code.
build() {
  local preset=$1 target=${2:-all} strict=OFF
  if [ "${CI:-}" = true ] && [ "$preset" = release ]; then strict=ON; fi
  say "building ${preset} in build/${preset}"
  quietly "$preset-configure" cmake --preset "$preset" -DRINGSIDE_WARNINGS_AS_ERRORS=$strict
  quietly "$preset-build" cmake --build --preset "$preset" --target "$target" --parallel "$(compile_jobs)"
}

# run_tests PRESET [CTEST OPTIONS]: on a terminal with ctest's progress, otherwise with no more than its last words.
run_tests() {
  local preset=$1 log=$log_folder/$1-tests.log status=0
  shift
  say "running the tests of ${preset}${*:+ ($*)}"
  mkdir -p "$log_folder"
  if [ -t 1 ]; then
    ctest --preset "$preset" -j2 --progress --no-tests=error --output-log "$log" "$@" </dev/null || status=$?
  else
    ctest --preset "$preset" -j2 --no-tests=error "$@" >"$log" 2>&1 </dev/null || status=$?
    if [ "$status" -ne 0 ]; then cat "$log" >&2; else grep -E 'tests passed,|[(]Skipped[)]' "$log"; fi
  fi
  [ "$status" -eq 0 ] || fail "tests of ${preset} failed (the whole output is in $log)"
}

say_time() { say "done in $(((SECONDS - started) / 60)) min $(((SECONDS - started) % 60)) s"; }
