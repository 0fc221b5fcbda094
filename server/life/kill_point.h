// For tests of crashes: with KVKEEP_KILL_AT=name:n in its environment the daemon kills itself
// (SIGKILL) when it gets to the test point `name` for the n-th time. Names:
// tests/crash/kill_points_test.cc.
#pragma once

namespace kvkeep {

// `name_and_count` is the variable's value; null: not set. Returns false if it is not of that form.
// Call once, before the first thread is started.
bool ArmKillPoint(const char* name_and_count);

}  // namespace kvkeep
