// Rig: a daemon, client processes that load it, and what must be true of it, over many kills.
// Clients note errors in the expected state; Judge turns them into failures of the test.
//
// For the test's main thread. Clients and daemon die with the Rig, or with the test's process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/crash/expected_state.h"
#include "tests/e2e/daemon.h"

namespace kvkeep::crash {

using e2e::milliseconds;
using e2e::Settings;
using e2e::Site;

struct RigOptions {
  uint32_t clients = 3;
  uint32_t keys = 40;  // of each client
  bool keeps = true;   // G3 has room for all: what was written back must survive
  bool tears = false;  // power is cut: what is not durable may be damaged, and is no hit
  uint64_t seed = 1;
};

// Figures of a run; printed at its end.
struct Figures {
  uint64_t cycles = 0, fsck_runs = 0;
  uint64_t checked = 0, survived = 0, operations = 0, durable_puts = 0;
  uint64_t g3_evictions = 0;
  uint64_t wrong = 0, lost = 0, hung = 0;
  uint64_t leaked_blocks = 0;  // of G3: held by a daemon at rest, and of no record
  double slowest_call_ms = 0;
  std::vector<double> ready_ms;
  // Adds the figures of another Rig.
  void Add(const Figures& other);
  std::string ToString() const;
};

// The fate of a daemon whose address space was cut.
enum class AfterCut {
  kEnded,     // by itself, as an allocation failed
  kRefused,   // it went on; calls failed
  kUnharmed,  // it went on, and nobody noticed anything
};

class Rig {
 public:
  Rig(const Settings& settings, const RigOptions& options);
  ~Rig();

  Site site;

  // Starts the daemon, has every key checked, and lets the clients go. False: it ended by itself
  // before that was done (a kill point).
  bool Start();
  // Starts a daemon that is to end by itself before it serves, `after` its start.
  void StartAndCutShort(milliseconds after);
  void KillAfter(milliseconds load);
  // Leaves it, under load, so many bytes of address space beyond what it has, and kills it some
  // time later. Fails when it hangs, or ends otherwise than for want of memory.
  AfterCut CutMemoryAfter(milliseconds load, uint64_t spare_bytes, milliseconds watched);
  // Waits for it to kill itself; false, and killed from here, when it does not.
  bool AwaitItsEnd(milliseconds patience);
  // The clients stop calling. Fails when one of them does not return.
  void HoldClients();
  // Before the power is cut: until the next Start a miss is no loss, and after it only what was
  // durable has to be there.
  void NotePowerCut() { state_->power_cut = state_->disk_gone = true; }
  // Starts a daemon that is to kill itself before it serves.
  void StartAndDie();
  // Checks that a dead daemon's files are whole, as far as headers tell: `kvkeep fsck` finds
  // nothing. Not to be called while its disk is gone.
  void CheckFiles();
  // Checks the files after a power cut, on the disk that is back: fsck gets to its end, and finds
  // nothing but chunks whose payload is damaged. There may be some: a removal that was lost with
  // the power brings back a record whose header is still there, while another chunk is being
  // written to its other blocks. Whether one of them had to be there is judged by the clients' next
  // check.
  void CheckFilesAfterPowerCut();
  uint64_t bad_after_cuts() const { return bad_after_cuts_; }
  // At the end, once it has started again: all comes to rest, nothing is held that nobody has, and
  // after one more kill the files are checked to the last byte.
  void Finish();

  Figures Sum() const;
  // Nothing wrong, lost or hung so far.
  void Judge() const;

 private:
  void StartClients();
  void Enter(Phase phase);
  // In this turn.
  bool ClientsAreThere() const;
  uint64_t FailedCalls() const;
  struct Found {
    int exit_status = -1;
    std::string said;
  };
  // Returns fsck's findings about the device.
  Found Fsck(const std::string& options);

  const RigOptions options_;
  ExpectedState state_;
  std::vector<int> clients_;  // processes
  std::vector<double> ready_ms_;
  uint64_t cycles_ = 0, checks_ = 0, g3_evictions_ = 0, leaked_blocks_ = 0, bad_after_cuts_ = 0;
};

}  // namespace kvkeep::crash
