#!/usr/bin/env bash
# Fuzzes what reads bytes that anybody may have made.
#
#   tests/fuzz/run.sh                       every target, 20 s in all
#   tests/fuzz/run.sh 600                   every target, so many seconds in all
#   tests/fuzz/run.sh 600 wire media        only these, half of it each
#   tests/fuzz/run.sh 600 wire -- -jobs=2   with more of libFuzzer's options
#
# The targets are built if they have to be. Fails when something was found; the last lines tell how
# many inputs each target ran.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

all=(local media config objects wire peers requests bulk)
seconds=20
targets=()
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then
  seconds=$1
  shift
fi
while [[ $# -gt 0 && "$1" != -- ]]; do
  [[ " ${all[*]} " == *" $1 "* ]] || { echo "run.sh: no target '$1': ${all[*]}" >&2; exit 2; }
  targets+=("$1")
  shift
done
[[ $# -eq 0 ]] || shift
[[ ${#targets[@]} -gt 0 ]] || targets=("${all[@]}")
share=$((seconds / ${#targets[@]}))
[[ $share -gt 0 ]] || share=1

cmake --preset asan >/dev/null
wanted=()
for target in "${targets[@]}"; do wanted+=("${target}_fuzz" "${target}_seeds"); done
cmake --build --preset asan --target "${wanted[@]}"
# A small quarantine: stores are made for every input, and fresh pages are most of their cost.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_stack_use_after_return=1:quarantine_size_mb=8}"
report=()
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target seeds=build/fuzz/seeds/$target log=build/fuzz/$target.log
  mkdir -p "$corpus" "$seeds"
  "build/asan/bin/${target}_seeds" "$seeds"
  echo "=== $target, $share s"
  # max_len: a header page with its selector, and scripts with some KB of payload.
  if ! "build/asan/bin/${target}_fuzz" -max_total_time="$share" -max_len=8192 -timeout=20 \
    -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="build/fuzz/$target-" "$@" \
    "$corpus" "$seeds" >"$log" 2>&1; then
    tail -n 60 "$log"
    echo "run.sh: $target found something: see above, and $log" >&2
    exit 1
  fi
  ran=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
  report+=("$(printf '%-10s %10s inputs, nothing found' "$target" "${ran:-?}")")
done
printf '%s\n' "${report[@]}"
