#!/usr/bin/env bash
# tools/background.sh on a real ninja, whose commands each have a process group of their own.
#   background_test.sh NINJA
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../tools/background.sh"
ninja=$1
scratch=$(mktemp -d)
trap 'stop_background; rm -rf "$scratch"' EXIT

fail() {
  echo "FAILED: $*" >&2
  ps -o pid,ppid,pgid,stat,time,args --sid "${background:-1}" >&2 || true
  exit 1
}

# Two that compute until they are ended, and many that are born all the time.
cat >"$scratch/build.ninja" <<'NINJA'
rule compute
  command = echo $$$$ > $out.pid; while :; do :; done
rule short
  command = true; true
build a: compute
build b: compute
NINJA
for ((n = 0; n < 3000; ++n)); do echo "build short$n: short" >>"$scratch/build.ninja"; done

await() { # CONDITION ...; another process's progress, which nothing tells
  for ((tries = 0; tries < 1200; ++tries)); do
    if "$@"; then return 0; fi
    sleep 0.05
  done
  fail "never came: $*"
}
both_compute() { [[ -s "$scratch/a.pid" && -s "$scratch/b.pid" ]]; }
ticks() { # of CPU, of both and of ninja's session as a whole
  local pid
  for pid in $(ps -o pid= --sid "$background"); do
    sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null || true
  done | awk '{ sum += $12 + $13 } END { print sum + 0 }'
}
computes() { [[ $(ticks) -gt $1 ]]; }
nothing_runs() { [[ -z "$(ps -o stat= --sid "$background" | grep -v '^[TDZ]')" ]]; }
gone() { [[ ! -d "/proc/$1" ]] || grep -q '^State:.Z' "/proc/$1/status"; }

start() {
  rm -f "$scratch"/*.pid
  start_background "$scratch/log" "$ninja" -C "$scratch" -j4 -k0
  await both_compute
  a=$(<"$scratch/a.pid") b=$(<"$scratch/b.pid")
}

start
[[ $(ps -o pgid= -p "$a") -ne $background ]] || fail "ninja no longer makes groups: see background.sh"
for ((round = 0; round < 3; ++round)); do
  pause_background
  for ((tries = 0; tries < 20; ++tries)); do # one that waited for a disk runs before it stops
    if nothing_runs; then break; fi
    sleep 0.05
  done
  nothing_runs || fail "something runs when paused"
  before=$(ticks)
  sleep 0.3 # time in which it could run
  [[ $(ticks) -eq $before ]] || fail "paused, and computes"
  go_on_background
  await computes "$before"
done
echo "ok: paused with all its commands, and goes on"

number=$background
stop_background
gone "$a" && gone "$b" || fail "a command outlives the stop"
[[ -z "$(ps -o stat= --sid "$number" | grep -v '^Z')" ]] || fail "something outlives the stop"
echo "ok: stopped with all its commands"

start
pause_background
stop_background
gone "$a" && gone "$b" || fail "a command outlives the stop of a paused build"
echo "ok: a paused one can be stopped"

start_background "$scratch/log" true
await gone "$background"
kill() { fail "signals a number that is ours no more: kill $*"; }
pause_background
go_on_background
stop_background
unset -f kill
echo "ok: one that has ended is not signalled"
