#!/usr/bin/env bash
# Trains on the headers of another version of GCC where those are gone with which the program was built, and
# says what to do where there are none: another_release_test.sh PROGRAM
set -euo pipefail
[ "${2:-}" = inside ] || {
  own_user=()
  [ "$(id -u)" = 0 ] || own_user=(--user --map-root-user)
  unshare "${own_user[@]}" --mount true 2>/dev/null || { echo "SKIPPED: unshare is not allowed here" && exit 77; }
  exec unshare "${own_user[@]}" --mount "$0" "$1" inside
}
mount -t tmpfs none /usr/include/c++

train() { "$1" train --steps 1 --layers 1 --sequence 8 --batch 1 2>&1; }
said=$(train "$1") && echo "without headers it trains: $said" && exit 1
[[ $said == *"/usr/include/c++ has no others: name a text with --data"* ]] || { echo "without headers: $said" && exit 1; }
mkdir /usr/include/c++/99
seq 5000 >/usr/include/c++/99/vector
said=$(train "$1") || { echo "with those of version 99: $said" && exit 1; }
[[ $said == *"/usr/include/c++/99"* ]] || { echo "no word of the text: $said" && exit 1; }
