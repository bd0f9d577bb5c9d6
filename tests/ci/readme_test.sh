#!/usr/bin/env bash
# Runs tools/readme-check over a README of its own, with less patience.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/tools" "$folder/docs"
cp tools/lib.sh "$folder/tools"
sed 's/^silence_allowed=10 patience=300/silence_allowed=2 patience=5/' tools/readme-check >"$folder/tools/readme-check"
printf '#!/bin/sh\necho built\n' >"$folder/docs/build"
chmod +x "$folder/tools/readme-check" "$folder/docs/build"
cat >"$folder/README.md" <<'END'
# A project

Type `docs/build`, then `docs/pages` or `cmake`, or read `docs/build --help`:

    cd docs && there=$PWD      # the shell keeps both
    echo "in $there" && \
      test "$PWD" = "$there" && test -t 1
    docs/build

| `docs/build table` | is not typed |
|---|---|

<!-- readme-check skips docker: it needs Docker -->
Or `docker run image`.

## Next

```cpp
int not_typed = 1;
```
```sh
docs/build next
false
(exit 3)
```

    sleep 3; echo late
    for i in 1 2 3 4; do sleep 1; echo $i; done
    cat

<!-- readme-check ends sleep after "watching": it goes on until Ctrl-C -->

    echo watching; sleep 60
    echo seen; sleep 1
END
status=0
told=$("$folder/tools/readme-check" 2>&1) || status=$?
expect() {
  [ "$2" = "$3" ] || {
    printf '%s\n  expected: %s\n  got:      %s\n' "$1" "$2" "$3"
    exit 1
  }
}
expect "it fails" "1 readme-check: 5 commands failed, or printed nothing for more than 2 seconds" "$status $(tail -n 1 <<<"$told")"
expect "each command is in the table" 'right docs/build
right docs/build --help
right cd docs && there=$PWD
right echo "in $there" && test "$PWD" = "$there" && test -t 1
skipped docker run image (it needs Docker)
right docs/build next
FAILED 1 false
FAILED 3 (exit 3)
silent sleep 3; echo late
right for i in 1 2 3 4; do sleep 1; echo $i; done
FAILED 130 cat
right echo watching; sleep 60
FAILED 1 echo seen; sleep 1' "$(sed -nE '/^ +seconds/,/^readme-check/{/seconds|^readme-check/d;s/^(right|silent|skipped|FAILED [0-9]+) +([0-9]+ +[0-9]+ +)?/\1 /p}' <<<"$told")"
echo "README's commands are typed in turn"
