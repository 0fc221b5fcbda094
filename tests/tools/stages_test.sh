#!/usr/bin/env bash
# tools/test as a whole, on a cmake and a ctest that only note what they are asked: each stage has its
# turn, nothing that fails is counted as passed, and what was skipped is said.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/bin" "$scratch/tools" "$scratch/tests/fuzz"
cp "$root/tools/test" "$root/tools/background.sh" "$scratch/tools/"
export PATH="$scratch/bin:$PATH" NOTES="$scratch/notes"
unset CI

cat >"$scratch/bin/cmake" <<'SH'
#!/usr/bin/env bash
# A build beside the tests takes until it is told to end: it is a process to pause and to stop.
[[ "$1" != --build ]] || echo "build $3" >>"$NOTES"
[[ "$1" != --preset || "$2" != "${BREAKS:-}" ]] || exit 1
[[ "$1" != --build || "$(nice)" -lt 19 ]] || sleep 60
SH
cat >"$scratch/bin/ctest" <<'SH'
#!/usr/bin/env bash
while [[ $# -gt 0 ]]; do
  case "$1" in
    --test-dir) stage=${2#build/} ;;
    -L) alone=yes ;;
    -LE) [[ "$2" != *slow* ]] || quick=" quick" ;;
  esac
  shift
done
echo "test $stage ${alone:-beside}${quick:-}" >>"$NOTES"
mkdir -p "build/$stage/Testing/Temporary"
[[ "$stage ${alone:-beside}" != "${SKIPS:-}" ]] || cat >"build/$stage/Testing/Temporary/LastTest.log" <<'LOG'
1/3 Test: some_test
Command: "echo" "skipped: not this"
Output:
----------------------------------------------------------
  skipped: no io_uring here
  skipped: no io_uring here
All tests passed (2 assertions in 3 test cases)
<end of output>
2/3 Test: all_test
Output:
----------------------------------------------------------
  skipped: needs root, and a
  second line
test cases: 1 | 1 passed
assertions: - none -
<end of output>
3/3 Test: python_test
Output:
----------------------------------------------------------
test_a (__main__.A) ... skipped 'no compiler'
test_b (__main__.A) ... ok
<end of output>
LOG
if [[ "$stage ${alone:-beside}" == "${FAILS:-}" ]]; then
  echo "67% tests passed, 1 tests failed out of 3"
  exit 8
fi
echo "100% tests passed, 0 tests failed out of 3"
SH
printf '#!/usr/bin/env bash\necho fuzz >>"$NOTES"\n' >"$scratch/tests/fuzz/run.sh"
chmod +x "$scratch/bin/cmake" "$scratch/bin/ctest" "$scratch/tests/fuzz/run.sh"

fail() {
  echo "FAILED: $*" >&2
  cat "$scratch/out" "$NOTES" >&2
  exit 1
}
run() { # WANTED_EXIT_CODE WANTED_LAST_LINE ARGUMENT ...
  mkdir -p "$scratch"/build/{release,asan,tsan}
  : >"$NOTES"
  local status=0
  timeout 100 "$scratch/tools/test" --no-deps --jobs 2 "${@:3}" >"$scratch/out" 2>&1 || status=$?
  [[ $status -eq $1 ]] || fail "exit code $status, not $1: $*"
  [[ "$(tail -n 1 "$scratch/out")" == "$2" ]] || fail "not '$2' at the end: $*"
}
tested() { grep '^test\|^fuzz' "$NOTES" | tr '\n' ','; }

run 0 "3 passed, 0 failed"
[[ "$(tested)" == "test release beside quick," ]] || fail "more than the release build's quick tests"
run 0 "3 passed, 0 failed" --times
[[ "$(tested)" == "test release yes," ]] || fail "more than the tests that judge times"
run 0 "19 passed, 0 failed" --all
[[ "$(tested)" == "test release beside,test release yes,test asan beside,test asan yes,fuzz,\
test tsan beside,test tsan yes," ]] || fail "not each stage, once, in order"
run 0 "6 passed, 0 failed" tsan release
[[ "$(tested)" == "test tsan beside,test release beside," ]] || fail "slow tests of a stage left out"
FAILS="release beside" run 1 "5 passed, 1 failed" --all
grep -q '^asan  *not run' "$scratch/out" || fail "what was not run is not said"
FAILS="asan yes" run 1 "17 passed, 1 failed" --keep-going --all
[[ "$(tested)" == *"test tsan yes,"* ]] || fail "--keep-going did not go on"
BREAKS=tsan run 1 "13 passed, 1 failed" --all

said() { grep -qxF "$1" "$scratch/out" || fail "does not say '$1'"; }
# A test that skipped all it has is none that passed.
SKIPS="release beside" run 0 "2 passed, 0 failed" release
said "         release: SKIPPED in some_test: 2 x no io_uring here"
said "         release: SKIPPED in all_test: 1 x needs root, and a"
said "         release: SKIPPED in all_test: nothing else"
said "         release: SKIPPED in python_test: 1 x 'no compiler'"
[[ $(grep -c SKIPPED "$scratch/out") -eq 4 ]] || fail "says more than was skipped"
SKIPS="release beside" run 1 "2 passed, 1 failed" --no-skips release
run 0 "3 passed, 0 failed" --no-skips release
grep -qE '^release  ok      +0\.[0-9] min$' "$scratch/out" || fail "no minutes of the stage"
grep -qE '^all +0\.[0-9] min$' "$scratch/out" || fail "no minutes of all"
echo "each stage had its turn"
