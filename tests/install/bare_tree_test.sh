#!/usr/bin/env bash
# Packs a build (tools/gpu-check --pack) and rehearses the archive in a tree that has a C library,
# bash and a few tools, and no other library: each step must end with the sentence that there is no
# GPU.
#
#   bare_tree_test.sh BUILD FOLDER
#
# The tools of the tree keep their own libraries apart, so that the program cannot find these.
set -euo pipefail

build=$1 tree=$2/bare_tree
cd "$(dirname "$0")/../.."

skip() {
  echo "SKIPPED: $*"
  exit 77
}
[ "$(id -u)" -eq 0 ] || skip "chroot needs root"
unshare --mount true 2>/dev/null || skip "this container may not mount"
[ ! -e /dev/nvidia0 ] || skip "this machine has a GPU"
rm -rf "$tree"  # of a run that failed
told=$(find "$build/tests/collectives" -type f -name test_cuda -exec {} \;)
[[ $told != *"this build has no CUDA"* ]] || skip "this build has no CUDA"

tools/gpu-check --pack --binaries "$build"

mkdir -p "$tree"/{bin,dev,proc,tmp,lib64,tools/lib,lib/x86_64-linux-gnu}
: >"$tree/dev/null"
ln -s /proc/self/fd "$tree/dev/fd"
ln -s bash "$tree/bin/sh"
loader=/lib64/ld-linux-x86-64.so.2
libraries_of() { ldd "$1" | awk '$2 == "=>" { print $3 }'; }

# The C library and its parts; bash.
cp -L $loader "$tree/lib64/"
for library in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libresolv.so.2; do
  cp -L "$(ldconfig -p | awk -v name=$library '$1 == name && /x86-64/ { print $NF; exit }')" \
    "$tree/lib/x86_64-linux-gnu/"
done
cp -L "$(type -P bash)" "$tree/bin/bash"
for library in $(libraries_of "$(type -P bash)"); do
  cp -Lu "$library" "$tree/lib/x86_64-linux-gnu/"
done

for tool in basename cat cp date dirname env find grep gzip head id mkdir mktemp mv rm sed sleep sort \
  tail tar timeout tr wc; do
  cp -L "$(type -P $tool)" "$tree/tools/$tool"
  for library in $(libraries_of "$(type -P $tool)"); do cp -Lu "$library" "$tree/tools/lib/"; done
  printf '#!/bin/bash\nexec %s --library-path /tools/lib /tools/%s "$@"\n' $loader $tool \
    >"$tree/bin/$tool"
  chmod +x "$tree/bin/$tool"
done

tar -xzf build/ringside-gpu-check.tar.gz -C "$tree"
# shellcheck disable=SC2016  # the inner shell expands $1
unshare --mount bash -c 'mount --rbind /proc "$1/proc" &&
  exec env -i PATH=/bin HOME=/tmp /usr/sbin/chroot "$1" /bin/bash /ringside-gpu-check/gpu-check --rehearse \
    --out /tmp/check' - "$tree" && status=0 || status=$?

[ "$status" -eq 2 ] || {
  cat "$tree"/tmp/check/gpu-check.json
  echo "expected exit code 2 (no GPU, and every step says so), got $status"
  exit 1
}
found=$(cd "$tree/tmp" && find . -type f | sort | tr '\n' ' ')
[ "$found" = "./check/gpu-check.json ./check/gpu-check.tar.gz " ] || {
  echo "expected two files in check/ and nothing else in /tmp, found $found"
  exit 1
}
rm -rf "$tree"
