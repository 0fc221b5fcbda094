#!/bin/sh
# shrink_test.sh PROGRAM DIR: a run of the simulator that fails is repeated as its line says, made
# short, and the script left in DIR fails in the same way when it is replayed.
set -eu
program=$1
file=$2/shrunk.script
log=$2/shrunk.log

fail() {
    echo "shrink_test: $*" >&2
    exit 1
}

# Under another policy than the usual one: it has to find its way into the script.
"$program" --seeds 200 --steps 1000 --policy arc --find-failure >"$log" || fail "no seed fails"
again=$(sed -n 's/^ *make it short with //p' "$log" | head -n 1)
failure=$(sed -n 's/.* FAILED at step [0-9]*: //p' "$log" | head -n 1)
[ -n "$again" ] && [ -n "$failure" ] || fail "the failure is not told: $(cat "$log")"

rm -f "$file"
# shellcheck disable=SC2086 # several arguments
"$program" $again --out "$file" >>"$log" || fail "not made short: $again"
[ "$(head -n 1 "$file")" = "# $failure" ] || fail "the script is of another failure: $(cat "$file")"
grep -qx 'policy arc' "$file" || fail "the script has no policy"
steps=$(grep -c '^step' "$file")
[ "$steps" -lt 100 ] || fail "$steps steps are not short"

if "$program" --script "$file" >"$log" 2>&1; then fail "the script does not fail"; fi
grep -qxF "$failure" "$log" || fail "the script fails in another way: $(cat "$log")"
echo "$steps steps: $failure"
