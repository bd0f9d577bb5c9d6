#!/usr/bin/env bash
# Runs .ci/parts.sh with parts that do nothing, on a clock that the test sets; and what tools/lib.sh shows
# of a command that takes long.
set -euo pipefail
cd "$(dirname "$0")/../.."

# run_with BUDGET MINUTES: prints what run_parts says when so many minutes are over.
run_with() (
  source tools/lib.sh
  source .ci/parts.sh
  turn_of_commit() { echo "$commit"; }
  can_run_late() { [ $((++asked)) -gt 2 ] && [[ $1 = l? ]]; }
  sleep() { :; }
  asked=0 started=$((SECONDS - 60 * $2)) program=ci
  for k in 1 2 3 4 5 6 7; do part proofs "p$k" "echo ran p$k"; done
  for k in 1 2 3 4 5; do part late "l$k" "echo ran l$k"; done
  if [ -n "${more:-}" ]; then
    optional_kinds=extra kinds_in_order="other sorted"
    for k in 1 2; do part extra "x$k" "echo ran x$k"; done
    for k in 1 2 3 4 5 6; do part sorted "s$k" "echo ran s$k"; done
  fi
  CI_BUDGET=$1 run_parts
)

expect() {
  local what=$1 expected=$2 seen=$3
  [ "$seen" = "$expected" ] || {
    printf '%s: expected\n%s\ngot\n%s\n' "$what" "$expected" "$seen" >&2
    exit 1
  }
}
ran() { grep '^ran' <<<"$1" | cut -c5- | paste -sd' '; }

commit=0
told=$(run_with none 1000)
expect "without a budget every part runs, and none waits while another can run" "p1 p2 p3 l1 l2 l3 p4 p5 l4 p6 l5 p7" "$(ran "$told")"
expect "and nothing is left out" "" "$(grep 'left out' <<<"$told" || true)"

told=$(run_with 20 90)
expect "a fifth always runs" "p1 p2 l1" "$(ran "$told")"
expect "the others are named" "ci: left out, because 20 minutes (CI_BUDGET) are over: proofs: p3, p4, p5, p6, p7
ci: left out, because 20 minutes (CI_BUDGET) are over: late: l2, l3, l4, l5" "$(grep 'left out' <<<"$told")"
expect "and counted" "ci: proofs: 2 of 7 parts in 0:00
ci: late: 1 of 5 parts in 0:00" "$(grep ' of ' <<<"$told")"

commit=13
expect "another commit begins with another part" "p7 p1 l4" "$(ran "$(run_with 20 90)")"

more=yes
told=$(run_with 20 90)
expect "in order, and without what is optional" "p7 p1 s1 s2 l4" "$(ran "$told")"
expect "an optional kind is left out whole" "ci: extra: 0 of 2 parts in 0:00
ci: left out, because 20 minutes (CI_BUDGET) are over: extra: x2, x1" "$(grep extra <<<"$told")"
more=

told=$(run_with 0 1 2>&1) && exit 1
expect "a wrong budget is refused" 'ci: expected CI_BUDGET in minutes, or none, got "0"' "$told"

part_that_fails() (
  source tools/lib.sh
  source .ci/parts.sh
  part proofs bad false
  part proofs good "echo ran good"
  turn_of_commit() { echo 0; }
  run_parts
)
set +e
(set -e; part_that_fails)
status=$?
set -e
expect "a part that fails ends the run" 1 "$status"

silent_then_counting='source tools/lib.sh; program=x; { sleep 4; echo "[1/4] built"; sleep 2.5; } | show_progress'
told=$(script --quiet --return --command "bash -c '$silent_then_counting'" /dev/null)
shown() { [[ $told =~ $1 ]] && echo yes || echo "no: $told"; }
expect "a command that prints nothing is shown on a terminal" yes "$(shown 'x: 0:0[2-4]')"
expect "one that counts says how far it is" yes "$(shown 'x: \[1/4\] 0:0[4-9], about 0:[1-3][0-9] left')"
expect "elsewhere nothing is shown for a minute" "" "$(bash -c "$silent_then_counting")"
echo "the parts run in turn"
