// Rig: a daemon, client processes that load it, and checks over many kills. Clients record errors
// in the expected state; Judge turns them into failures of the test.
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
  bool keeps = true;   // G3 has room for all: chunks that were written back must survive
  bool tears = false;  // power is cut: chunks that are not durable may be damaged, and are no hits
  uint64_t seed = 1;
};

// Figures of a run; printed at its end.
struct Figures {
  uint64_t cycles = 0, fsck_runs = 0;
  uint64_t checked = 0, survived = 0, operations = 0, durable_puts = 0;
  uint64_t g3_evictions = 0;
  uint64_t wrong = 0, lost = 0, hung = 0;
  uint64_t leaked_blocks = 0;  // of G3: held by a daemon at rest, without a record
  double slowest_call_ms = 0;
  std::vector<double> ready_ms;
  // Adds the figures of another Rig.
  void Add(const Figures& other);
  std::string ToString() const;
};

// The fate of a daemon whose address space was cut.
enum class AfterCut {
  kEnded,     // it ended by itself, as an allocation failed
  kRefused,   // it went on; calls failed
  kUnharmed,  // it went on, without any effect
};

class Rig {
 public:
  Rig(const Settings& settings, const RigOptions& options);
  ~Rig();

  Site site;

  // Starts the daemon, has every key checked, and starts the clients. Returns false if it ended by
  // itself before that (a kill point).
  bool Start();
  // Starts a daemon that is to end by itself before it serves, `after` its start.
  void StartAndCutShort(milliseconds after);
  void KillAfter(milliseconds load);
  // Limits its address space, under load, to `spare_bytes` more than it has, and kills it some time
  // later. Fails if it hangs, or ends for a reason other than lack of memory.
  AfterCut CutMemoryAfter(milliseconds load, uint64_t spare_bytes, milliseconds watched);
  // Waits for it to kill itself. Otherwise kills it, and returns false.
  bool AwaitItsEnd(milliseconds patience);
  // Stops the clients' calls. Fails if a client does not return.
  void HoldClients();
  // Call it before the power is cut: until the next Start a miss is no loss, and after it only
  // durable chunks must be there.
  void NotePowerCut() { state_->power_cut = state_->disk_gone = true; }
  // Starts a daemon that is to kill itself before it serves.
  void StartAndDie();
  // Checks that a dead daemon's files are whole, by their headers: `kvkeep fsck` finds nothing. Do
  // not call it while its disk is gone.
  void CheckFiles();
  // Checks the files after a power cut, on the disk that is back: fsck completes, and finds only
  // chunks with damaged payloads. There may be some: a lost removal brings back a record whose
  // header is still there, while another chunk is being written to its other blocks. The clients'
  // next check finds chunks that had to survive.
  void CheckFilesAfterPowerCut();
  uint64_t bad_after_cuts() const { return bad_after_cuts_; }
  // Call it at the end, once the daemon has started again. Checks that it comes to rest and leaks
  // nothing, and after one more kill checks all bytes of the files.
  void Finish();

  Figures Sum() const;
  // Checks that nothing is wrong, lost or hung so far.
  void Judge() const;

 private:
  void StartClients();
  void Enter(Phase phase);
  // Returns whether all clients have reached this turn.
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
