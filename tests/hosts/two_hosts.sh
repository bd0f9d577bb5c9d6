#!/usr/bin/env bash
# Two hosts on one machine, for tests: two network namespaces, connected by two cables (veth).
#
#     host a   wire0 10.77.0.1  fd77::1  ---------------  10.77.0.2  fd77::2  wire0   host b
#              wire1 10.78.0.1           ---------------  10.78.0.2           wire1
#
# Both also have a default route, so that an address that nobody has leads somewhere.
#
# usage: unshare --net --map-root-user two_hosts.sh SCRIPT
#
# This shell runs SCRIPT on host a; `on_b COMMAND...` runs a command on host b. Host b also has its
# own process numbers, so that ranks do not take the two for one host. The namespaces have no names:
# the kernel removes them with their last process.
set -u

unshare --net --pid --fork --kill-child sleep 600 &
holder=$!
trap 'exec 2>/dev/null; kill -KILL $holder $host_b; wait' EXIT
host_b=
while [ -z "$host_b" ] || [ "$(readlink "/proc/$host_b/ns/net")" = "$(readlink /proc/self/ns/net)" ]; do
  kill -0 $holder || exit 77
  sleep 0.01
  host_b=$(pgrep -P $holder)
done
# Without LeakSanitizer: it looks for its own process number in /proc, which differs on host b.
on_b() { ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 nsenter --target "$host_b" --net --pid -- "$@"; }

# "${knows[@]}" LINES COMMAND...: runs the command with these lines in /etc/hosts, and no name server.
knows=(unshare --mount sh -c 'file=$(mktemp) && printf "127.0.0.1 localhost\n%b\n" "$0" > "$file" &&
  mount --bind "$file" /etc/hosts && rm "$file" && { mount --bind /dev/null /etc/resolv.conf || true; } &&
  exec "$@"')

ip link set lo up
on_b ip link set lo up
for cable in 0 1; do
  ip link add wire$cable type veth peer name wire$cable netns "$host_b" || exit 77
  ip address add 10.7$((7 + cable)).0.1/24 dev wire$cable
  on_b ip address add 10.7$((7 + cable)).0.2/24 dev wire$cable
  ip link set wire$cable up
  on_b ip link set wire$cable up
done
ip address add fd77::1/64 dev wire0 nodad
on_b ip address add fd77::2/64 dev wire0 nodad
ip route add default via 10.77.0.2
on_b ip route add default via 10.77.0.1

# The bytes that host a has received through a cable.
came_by() { ip -s link show "$1" | awk '/RX:/ {getline; print $1}'; }
# The bytes that have passed a cable in both directions.
passed_by() { ip -s link show "$1" | awk '/RX:|TX:/ {getline; sum += $1} END {printf "%d", sum}'; }

eval "$1"
