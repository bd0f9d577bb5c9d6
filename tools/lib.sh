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

# quietly NAME COMMAND...: runs the command and writes its output to build/logs/NAME.log. Shows how
# far it is, if it counts its steps, and the end of the log if it fails.
quietly() {
  local log=$log_folder/$1.log
  shift
  mkdir -p "$log_folder"
  "$@" </dev/null 2>&1 | tee "$log" | show_progress && return
  tail -n 60 "$log" >&2
  fail "the command failed: $* (its whole output is in $log)"
}

# Reads the output of ninja, ctest, apt-get or any other command, and says how long it has run, and how
# far it is where it counts. On a terminal one line, which moves each second:
#     [47/182] 0:38, about 1:49 left
# elsewhere a line a minute.
show_progress() {
  local line= part status finished=0 total=0 elapsed began=$SECONDS packages=0 steps=0
  local on_terminal= every=60 next=60
  if [ -t 1 ]; then on_terminal=yes every=1 next=2; fi
  while true; do
    status=0
    IFS= read -r -t 1 part || status=$?
    line+=$part
    if [ "$status" -eq 0 ]; then
      if [[ $line =~ ^\ *\[?([0-9]+)/([0-9]+)\]?\  ]]; then
        finished=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
      elif [[ $line =~ ,\ ([0-9]+)\ newly\ installed ]]; then
        packages=${BASH_REMATCH[1]}
      elif [[ $line =~ ^(Get:|Unpacking|Setting\ up) ]] && [ "$packages" -gt 0 ]; then
        steps=$((steps + 1)) finished=$((steps / 3)) total=$packages
      fi
      line=
    elif [ "$status" -le 128 ]; then  # the end; above, nothing has come for a second
      break
    fi
    elapsed=$((SECONDS - began))
    if [ "$elapsed" -lt "$next" ]; then continue; fi
    next=$((elapsed + every))
    part=$(minutes $elapsed)
    if [ "$finished" -gt 0 ]; then
      part="[$finished/$total] $part, about $(minutes $((elapsed * (total - finished) / finished))) left"
    fi
    if [ "$on_terminal" ]; then printf '\r%s: %s\e[K' "$program" "$part"; else say "$part"; fi
  done
  if [ "$on_terminal" ]; then printf '\r\e[K'; fi
}

minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

libraries="libboost-dev libfmt-dev libcli11-dev nlohmann-json3-dev doctest-dev"
libraries+=" libopenblas-openmp-dev libssl-dev"

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

found_openblas() {
  [ -n "$(find /usr/lib /usr/local/lib -name libopenblas.so -print -quit 2>/dev/null)" ]
}

# missing_packages [PROGRAM...]: the packages of Debian and Ubuntu that are still missing for the build, and
# for these programs. A tool counts as present if its command is found, wherever it comes from.
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
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null && continue
    case $program in
      pytest-3) echo python3-pytest ;;
      *) echo "$program" ;;  # the package has its name
    esac
  done
}

install_what_is_missing() {
  if command -v apt-get >/dev/null; then
    # shellcheck disable=SC2046  # one word for each package
    install_packages $(missing_packages "$@")
    return
  fi
  local tool
  for tool in c++ cmake ninja "$@"; do
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

# add_architecture NAME: lets apt-get install packages of another architecture, arm64 or amd64.
add_architecture() {
  if dpkg --print-foreign-architectures | grep -qx "$1"; then return; fi
  say "adding the architecture $1 to dpkg's"
  local sudo=()
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  "${sudo[@]}" dpkg --add-architecture "$1"
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

# With ccache a second checkout compiles nothing that the first has compiled: paths in the project
# count as relative ones, and debug information may name the folder of the first.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}

# build PRESET [TARGETS...]: configures and builds. In CI a warning in the release build is an error.
# Sanitizer builds keep their warnings: GCC also warns about the checks that it adds itself.
build() {
  local preset=$1 targets=("${@:2}") strict=OFF
  if [ "${CI:-}" = true ] && [ "$preset" = release ]; then strict=ON; fi
  say "building ${preset} in build/${preset}"
  quietly "$preset-configure" cmake --preset "$preset" -DRINGSIDE_WARNINGS_AS_ERRORS=$strict
  quietly "$preset-build" cmake --build --preset "$preset" --target "${targets[@]:-all}" \
    --parallel "$(compile_jobs)"
}

# More tests than processors: many wait most of their time. Of two processors a fifth is idle with three
# tests at once, and next to nothing with four.
test_jobs=$(($(nproc) * 3 / 2 + 1))

# run_tests PRESET [CTEST OPTIONS]: shows how far ctest is, then its summary, and what was skipped.
run_tests() {
  local preset=$1 log=$log_folder/$1-tests.log status=0
  shift
  say "running the tests of ${preset}${*:+ ($*)}"
  mkdir -p "$log_folder"
  ctest --preset "$preset" -j"$test_jobs" --no-tests=error "$@" </dev/null 2>&1 | tee "$log" | show_progress ||
    status=$?
  if [ "$status" -ne 0 ]; then
    sed -n '/^The following tests FAILED/,$!{/Passed  /d;/^ *Start /d;p}' "$log" >&2
    sed -n '/^The following tests FAILED/,$p' "$log" >&2
    fail "tests of the ${preset} build failed (the whole output is in $log)"
  fi
  grep 'tests passed,' "$log"
  say_what_was_skipped "$preset"
}

# One line: how many tests, and why: "SKIPPED: reason", and of pytest "SKIPPED [1] file.py:12: reason".
# "(SKIPPED: ...)" is what a program says that a test runs. ctest repeats what it looks for.
say_what_was_skipped() {
  local reasons
  reasons=$({ grep -v '^Skip regular expression found' "build/$1/Testing/Temporary/LastTest.log" |
    grep -Eho '(^|[^(])SKIPPED(: [A-Za-z]| \[1\] ).*' ||
    true; } | sed -E 's/^.*SKIPPED(: | \[1\] [^ ]+: )//' |
    sort | uniq -c | sort -rn | awk '{ count = $1; sub(/^ *[0-9]+ /, ""); sub(/\.$/, "")
      text = text (NR > 1 ? "; " : "") $0 " (" count ")" } END { print text }')
  if [ -n "$reasons" ]; then say "skipped: $reasons"; fi
}

# Prints the comment at the top of a script, and ends it, if one of its arguments is --help.
help_if_asked() {
  local argument
  for argument; do
    case $argument in
      -h | --help)
        sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"
        exit
        ;;
    esac
  done
}

# phase NAME: what follows belongs to this phase, until the next one. say_phases prints how long each
# took, and how much of the processors all programs of the machine used meanwhile.
phase_names=() phase_starts=()
phase() {
  phase_names+=("$1")
  phase_starts+=("$SECONDS $(processor_times)")
}

# The ticks of all processors since the machine started: how many, and how many of them idle.
processor_times() { awk '/^cpu / { for (i = 2; i <= 9; ++i) all += $i; print all, $5 + $6 }' /proc/stat; }

say_phases() {
  local i starts=("${phase_starts[@]}" "$SECONDS $(processor_times)") began all idle ended all_then idle_then
  printf '%8s  %4s  %s\n' minutes busy phase
  for i in "${!phase_names[@]}"; do
    read -r began all idle <<<"${starts[i]}"
    read -r ended all_then idle_then <<<"${starts[i + 1]}"
    printf '%8s  %3d%%  %s\n' "$(minutes $((ended - began)))" \
      $((all_then > all ? 100 - 100 * (idle_then - idle) / (all_then - all) : 0)) "${phase_names[i]}"
  done
}

say_time() { say "done in $(minutes $((SECONDS - started))) min"; }
