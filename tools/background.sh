# A build beside something else, for tools/test: one at a time, started, paused, stopped as a whole.
# Read by bash with `source`; needs ps.
#
# ninja puts each of its commands into a process group of its own, so a signal to the build's group
# reaches no compiler. A session keeps them together, whoever their parent is by then: all that is
# signalled here are the processes of the build's session, and only if it is still a job of ours or
# has just been ended by us, as its number may be used again.

background= # the session's number, which is that of its first process

# Runs a command with what others leave of the machine: at the lowest priority, of its session too
# where the kernel weighs sessions (autogroup), and the first to go when memory is short. A compiler
# that is ended so is that build's failure, of nobody else.
start_background() { # LOG COMMAND ...
  setsid nice -n 19 bash -c '
    { echo 19 >/proc/self/autogroup; echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null
    exec "$@"' background "${@:2}" </dev/null >"$1" 2>&1 &
  background=$!
}

background_runs() { is_our_job "$background"; }

is_our_job() { # PID
  [[ -n "$1" && " $(jobs -rp) $(jobs -sp) " =~ [[:space:]]"$1"[[:space:]] ]]
}

processes_of_background() { ps -o pid=,stat= --sid "$background" | awk '$2 !~ /^Z/' || true; }

signal_background() { # SIGNAL; whoever has ended meanwhile needs none
  local pids
  mapfile -t pids < <(processes_of_background | awk '{ print $1 }')
  [[ ${#pids[@]} -eq 0 ]] || kill "-$1" "${pids[@]}" 2>/dev/null || true
}

# Returns when none of it runs. It looks again for processes born while the others were stopped; one
# that waits for a disk or for its child's exec stops as soon as it goes on.
pause_background() {
  background_runs || return 0
  local before= now i
  for ((i = 0; i < 100; ++i)); do
    now=$(processes_of_background)
    if [[ "$now" == "$before" ]] && ! grep -q ' [A-CE-SU-Z]' <<<"$now"; then return 0; fi
    signal_background STOP
    sleep 0.05 # until the signals have come
    before=$now
  done
  echo "tools/test: the build beside the tests does not stop; tests of times may fail by it" >&2
}

go_on_background() { ! background_runs || signal_background CONT; }

# Returns when all of it has ended, so that nobody writes to the build tree any more.
stop_background() {
  [[ -n "$background" ]] || return 0
  if background_runs; then
    local signal=TERM i
    for ((i = 0; i < 300; ++i)); do
      [[ -n "$(processes_of_background)" ]] || break
      [[ $i -lt 200 ]] || signal=KILL
      signal_background "$signal"
      signal_background CONT # who is paused ends only then
      sleep 0.05 # for processes that are no children of this one there is no wait
    done
  fi
  wait "$background" 2>/dev/null || true
  background=
}
