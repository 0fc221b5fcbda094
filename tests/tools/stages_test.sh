#!/usr/bin/env bash
# tools/test as a whole, on a cmake and a ctest that only note what they are asked: each stage has its
# turn, and nothing that fails is counted as passed.
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
  esac
  shift
done
echo "test $stage ${alone:-beside}" >>"$NOTES"
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

run 0 "19 passed, 0 failed"
[[ "$(tested)" == "test release beside,test release yes,test asan beside,test asan yes,fuzz,\
test tsan beside,test tsan yes," ]] || fail "not each stage, once, in order"
run 0 "12 passed, 0 failed" tsan release
FAILS="release beside" run 1 "5 passed, 1 failed"
grep -q '^asan  *not run' "$scratch/out" || fail "what was not run is not said"
FAILS="asan yes" run 1 "17 passed, 1 failed" --keep-going
[[ "$(tested)" == *"test tsan yes,"* ]] || fail "--keep-going did not go on"
BREAKS=tsan run 1 "13 passed, 1 failed"
echo "each stage had its turn"
