// FaultyDevice: a Device that wraps another and fails as disks do, by a seed: the same seed and the
// same order of calls give the same faults.
//
// It works on copies of the caller's memory, so that the device below never touches memory of a
// "process" that Kill() ended. Operations first wait their turn on `executor`, then go below. Their
// callbacks run where the device below runs its own, or on `executor` if they are delayed.
//
// An operation may get stuck: then it goes on only after Unstick(), or ends with the process. A
// device may be gone: requests then fail at once, until it is back.
//
// For a simulated restart give the disk an executor of its own: Kill(), drop the process's
// executor, run the disk's until it is idle, open a new device on the same MemoryDisk.
// Thread-safe when the executor and the device below are; both outlive it and its tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "tests/fakes/aligned_bytes.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"
#include "tiers/io/device.h"

namespace kvkeep {

// Probabilities, each for one operation. An operation has at most one fault of its kind.
struct FaultOptions {
  double read_error = 0;          // DataLoss, nothing read
  double corrupt_read = 0;        // one bit read is flipped; the medium stays right
  double short_read = 0;          // only some blocks from the start are read; reported OK
  double misdirected_read = 0;    // another place is read, block-aligned; reported OK
  double write_error = 0;         // DataLoss, nothing written
  double corrupt_write = 0;       // one bit written is flipped; reported OK
  double torn_write = 0;          // only some blocks from the start are written (perhaps none)
  double misdirected_write = 0;   // written to another place, block-aligned; reported OK
  double torn_reported_ok = 0.5;  // of the torn writes; the others report DataLoss
  double delay = 0;               // goes below, or is reported, some turns of the executor later
  uint32_t max_delay_turns = 16;
  double stuck = 0;         // goes below, or is reported, only after Unstick()
  double sync_error = 0;    // DataLoss, nothing made stable; of each Sync
  double sync_drops = 0;    // share of failed syncs that lose the data; later syncs succeed
  double sync_lies = 0;     // OK, nothing made stable; of each Sync
  bool host_short = false;  // read and write errors are the kernel's, for lack of memory
};

class FaultyDevice final : public Device {
 public:
  struct Stats {  // faults injected
    uint64_t read_errors = 0, corrupt_reads = 0, short_reads = 0, misdirected_reads = 0;
    uint64_t write_errors = 0, corrupt_writes = 0, torn_writes = 0, misdirected_writes = 0;
    uint64_t delayed = 0, stuck = 0, failed_syncs = 0, lying_syncs = 0, gone = 0;
    uint64_t dropping_syncs = 0;                                         // of the failed ones
    uint64_t dropped_callbacks = 0;                                      // by Kill and after it
    uint64_t killed_whole = 0, killed_partly = 0, killed_unwritten = 0;  // writes Kill decided on
  };

  FaultyDevice(Device* below, Executor* executor, uint64_t seed, const FaultOptions& options);
  // REQUIRES: every callback ran, or Kill() was called.
  ~FaultyDevice() override;

  void Submit(IoOperation operation) override;
  absl::Status Sync() override;
  uint64_t size_bytes() const override;
  bool direct() const override;

  // Acts like SIGKILL to the process that uses the device. Pending callbacks never run (they are
  // destroyed; one running on another thread ends), and its memory is not touched again. A write
  // that has not gone below is written whole, in part, or not at all; writes below end there as
  // they will. Later Submits are dropped.
  void Kill();

  // Sets the faults from now on; FaultOptions() ends all faults, and stuck operations go on.
  void set_options(const FaultOptions& options);
  // Lets stuck operations go on. Returns how many there were.
  size_t Unstick();
  // While it is gone, Submits and Syncs fail with Unavailable; operations under way end as usual.
  void SetGone(bool gone);
  // Sets what a Sync that drops its data does to the disk, with a seed. Call it before the first
  // Sync.
  void OnDroppingSync(std::function<void(uint64_t)> drop);
  // Continues as if made with this seed.
  void Reseed(uint64_t seed);
  Stats stats() const;

 private:
  enum class Fault;
  struct Pending;
  struct State;

  const std::shared_ptr<State> state_;  // held by tasks and operations below too
};

}  // namespace kvkeep
