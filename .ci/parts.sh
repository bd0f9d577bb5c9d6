# shellcheck shell=bash
# What runs as long as time is left, in parts of some minutes. .ci/run sources this file after
# tools/lib.sh.
#
#     part KIND NAME COMMAND...     adds a part
#     run_parts                     runs the parts of all kinds, then names those that were left out
#
# Of each kind a fifth always runs, but of those in optional_kinds. The others run until the budget is
# used: CI_BUDGET minutes from the start of the script, 45 where it is not set, or none. A part that
# has begun ends. With each commit another part of a kind is the first, so that none is left out for
# long; the parts of kinds_in_order come as they were added.

kinds=() optional_kinds="" kinds_in_order=""
declare -A parts_of commands_of ran_of seconds_of

part() {
  local kind=$1 name=$2
  shift 2
  [ -n "${parts_of[$kind]:-}" ] || kinds+=("$kind")
  parts_of[$kind]+="${parts_of[$kind]:+$'\n'}$name"
  commands_of[$kind $name]=$*
}

# Whether the next part of this kind can run now. A kind that waits for a build has a function of its
# own, can_run_KIND, which is given the part's name.
can_run() {
  if declare -F "can_run_$1" >/dev/null; then "can_run_$1" "$(next_of "$1")"; fi
}

# The number of this commit, by which the order turns.
turn_of_commit() { echo $((16#$(git rev-parse --short=7 HEAD | cut -c1-7))); }

# The parts of a kind, from the one whose turn it is.
in_turn() {
  local names
  mapfile -t names <<<"${parts_of[$1]}"
  local first=$((turn % ${#names[@]}))
  if [[ " $kinds_in_order " = *" $1 "* ]]; then first=0; fi
  printf '%s\n' "${names[@]:first}" "${names[@]:0:first}"
}

next_of() { in_turn "$1" | sed -n "$((${ran_of[$1]:-0} + 1))p"; }
count_of() { grep -c . <<<"${parts_of[$1]}"; }
always_of() {
  if [[ " $optional_kinds " = *" $1 "* ]]; then echo 0; else echo $((($(count_of "$1") + 4) / 5)); fi
}

# Sets `next` to the kind of the next part: one that must still run, or else, while time is left, the
# one of which the smallest share has run. "wait" if that kind cannot run yet, nothing at the end.
choose_next() {
  local kind must=0 waits=0 left share least=100
  next=
  for kind in "${kinds[@]}"; do
    left=$(($(always_of "$kind") - ${ran_of[$kind]:-0}))
    if [ "$left" -le 0 ]; then continue; fi
    must=$((must + left))
    if can_run "$kind"; then next=$kind && return; fi
    waits=1
  done
  # Two minutes are kept for each part that must run.
  if [ "$budget" = none ] || [ $((SECONDS - started + 120 * must)) -lt $((60 * budget)) ]; then
    for kind in "${kinds[@]}"; do
      share=$((100 * ${ran_of[$kind]:-0} / $(count_of "$kind")))
      if [ "$share" -ge 100 ]; then continue; fi
      if ! can_run "$kind"; then waits=1; elif [ "$share" -lt "$least" ]; then next=$kind least=$share; fi
    done
  fi
  if [ -z "$next" ] && [ "$waits" = 1 ]; then next=wait; fi
}

run_parts() {
  local budget=${CI_BUDGET:-45} turn next kind name began
  [[ $budget =~ ^([1-9][0-9]*|none)$ ]] ||
    fail "expected CI_BUDGET in minutes, or none, got \"$budget\""
  turn=$(turn_of_commit)
  while choose_next && [ -n "$next" ]; do
    if [ "$next" = wait ]; then sleep 1 && continue; fi
    kind=$next
    name=$(next_of "$kind")
    began=$SECONDS
    eval "${commands_of[$kind $name]}"
    ran_of[$kind]=$((${ran_of[$kind]:-0} + 1))
    seconds_of[$kind]=$((${seconds_of[$kind]:-0} + SECONDS - began))
    say "$kind, $name: $(minutes $((SECONDS - began)))"
  done
  for kind in "${kinds[@]}"; do
    say "$kind: ${ran_of[$kind]:-0} of $(count_of "$kind") parts in $(minutes "${seconds_of[$kind]:-0}")"
    name=$(in_turn "$kind" | tail -n +$((${ran_of[$kind]:-0} + 1)) | paste -sd, | sed 's/,/, /g')
    if [ -n "$name" ]; then
      say "left out, because $budget minutes (CI_BUDGET) are over: $kind: $name"
    fi
  done
}
