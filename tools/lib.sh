# shellcheck shell=bash
# Functions of ./demo, ./check and .ci/run, which source this file in the root of the project.

program=$(basename "$0")
log_folder=build/logs
started=$SECONDS

say() { echo "$program: $*"; }

fail() {
  echo "$program: $*" >&2
  exit 1
}

# quietly NAME COMMAND...: runs the command and writes its output to build/logs/NAME.log. Shows the
# end of the log if the command fails.
quietly() {
  local log=$log_folder/$1.log
  shift
  mkdir -p "$log_folder"
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 60 "$log" >&2
    fail "the command failed: $* (its whole output is in $log)"
  fi
}

libraries="libboost-dev libfmt-dev libcli11-dev nlohmann-json3-dev doctest-dev"
libraries+=" libopenblas-openmp-dev libpcre2-dev"

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

found_openblas() {
  [ -n "$(find /usr/lib /usr/local/lib -name libopenblas.so -print -quit 2>/dev/null)" ]
}

# The packages of Debian and Ubuntu that are still missing. A tool counts as present if its command
# is found, wherever it comes from.
missing_packages() {
  command -v c++ >/dev/null || echo g++
  command -v cmake >/dev/null || echo cmake
  command -v ninja >/dev/null || echo ninja-build
  command -v ccache >/dev/null || echo ccache
  local library
  for library in $libraries; do
    case $library in
      libopenblas-*) found_openblas || echo "$library" ;;
      *) installed "$library" || echo "$library" ;;
    esac
  done
}

install_what_is_missing() {
  if command -v apt-get >/dev/null; then
    # shellcheck disable=SC2046  # one word for each package
    install_packages $(missing_packages)
    return
  fi
  local tool
  for tool in c++ cmake ninja; do
    command -v "$tool" >/dev/null ||
      fail "found no $tool, and no apt-get to install it: install a C++20 compiler," \
        "cmake 3.22 or newer, ninja, and $libraries"
  done
}

# install_packages PACKAGES...: as root, or with sudo. Does nothing if there are none.
install_packages() {
  [ $# -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "packages are missing, and this user is not root: run as root: apt-get install $*"
    sudo true || fail "packages are missing, and sudo failed: run as root: apt-get install $*"
    as_root=(sudo)
  fi
  say "installing $*"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  quietly apt-update "${apt[@]}" update
  quietly apt-install "${apt[@]}" install --yes --no-install-recommends "$@"
}

# How many compilers run at once: one per processor, but no more than one per gigabyte of free
# memory. The largest file needs about 1 GB.
compile_jobs() {
  local processors gigabytes
  processors=$(nproc)
  gigabytes=$(awk '/^MemAvailable:/ {print int($2 / 1000000)}' /proc/meminfo)
  [ "$gigabytes" -ge 1 ] || gigabytes=1
  echo $((processors < gigabytes ? processors : gigabytes))
}

# build PRESET [TARGET]: configures and builds. In CI a warning in the release build is an error.
# Sanitizer builds keep their warnings: GCC also warns about the checks that it adds itself.
build() {
  local preset=$1 target=${2:-all} strict=OFF
  if [ "${CI:-}" = true ] && [ "$preset" = release ]; then strict=ON; fi
  say "building ${preset} in build/${preset}"
  quietly "$preset-configure" cmake --preset "$preset" -DRINGSIDE_WARNINGS_AS_ERRORS=$strict
  quietly "$preset-build" cmake --build --preset "$preset" --target "$target" \
    --parallel "$(compile_jobs)"
}

# run_tests PRESET [CTEST OPTIONS]: shows ctest's progress on a terminal, and only its summary
# elsewhere.
run_tests() {
  local preset=$1 log=$log_folder/$1-tests.log status=0
  shift
  say "running the tests of ${preset}${*:+ ($*)}"
  mkdir -p "$log_folder"
  if [ -t 1 ]; then
    ctest --preset "$preset" -j2 --progress --no-tests=error --output-log "$log" "$@" \
      </dev/null || status=$?
  else
    ctest --preset "$preset" -j2 --no-tests=error "$@" >"$log" 2>&1 </dev/null || status=$?
    if [ "$status" -ne 0 ]; then
      cat "$log" >&2
    else
      grep -E 'tests passed,|[(]Skipped[)]' "$log"
    fi
  fi
  [ "$status" -eq 0 ] || fail "tests of the ${preset} build failed (the whole output is in $log)"
}

say_time() { say "done in $(((SECONDS - started) / 60)) min $(((SECONDS - started) % 60)) s"; }
