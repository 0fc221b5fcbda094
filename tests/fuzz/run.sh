#!/usr/bin/env bash
# Fuzzes the local protocol: run.sh [SECONDS, 20 when not said] [more of libFuzzer's options]
# The target is built if it has to be. Fails when something was found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-20}
shift || true

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
mkdir -p build/fuzz/corpus build/fuzz/seeds
build/fuzz/bin/local_protocol_seeds build/fuzz/seeds
# A small quarantine: a store is made for every input, and fresh pages are most of its cost.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_stack_use_after_return=1:quarantine_size_mb=8}"
exec build/fuzz/bin/local_protocol_fuzz -max_total_time="$seconds" -max_len=8192 -timeout=20 \
  -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix=build/fuzz/ "$@" \
  build/fuzz/corpus build/fuzz/seeds
