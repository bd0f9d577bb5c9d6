#!/usr/bin/env bash
# A processor without AVX2, which QEMU plays, gets a sentence and not SIGILL: processor_test.sh PROGRAM
set -euo pipefail
skip() { echo "SKIPPED: $*" && exit 77; }
emulator=$(type -P qemu-x86_64-static qemu-x86_64 | head -n 1) || true
[ -n "$emulator" ] || skip "needs qemu-x86_64 (Debian: apt install qemu-user-static)"
grep -qw avx2 /proc/cpuinfo || skip "this machine's own processor lacks AVX2"

status=0
said=$("$emulator" -cpu Nehalem "$1" --version 2>&1) || status=$?
expected="^This program of Ringside was compiled for processors with avx(2|512f), which this one lacks: \
compile it on this machine \(./demo\), or use another machine\.$"
[[ "$status" = 1 && $said =~ $expected ]] || {
  echo "exit status $status and: $said"
  echo "expected: exit status 1 and: $expected"
  exit 1
}
