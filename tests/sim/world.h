// World: the things that outlive a daemon (disks, indexes, the clock) and one daemon's process on
// them.
//
// Everything of the process runs on ManualExecutors, in an order the test chooses. Kill() is
// SIGKILL, PowerCut() ends the machine with it; Start() recovers a new process from the rest. With
// `arena_outlives`, a kill leaves the memory of G2 as it is; LoseArena() makes the mount anew.
//
// Disks have a volatile cache: a power cut takes the writes that no Sync followed. A dead process's
// writes land, or not, before the next one opens the device: on a real machine they hold the locks
// of its files until they end. With `late_writes`, writes to a device that the next process lacks
// land at any time while it runs.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "tests/fakes/faulty_device.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/manual_executor.h"
#include "tests/fakes/memory_arena.h"
#include "tests/fakes/memory_device.h"
#include "tests/fakes/memory_index.h"
#include "tests/fakes/memory_nvme_device.h"
#include "tests/fakes/memory_remote_source.h"
#include "tests/fakes/memory_removal_log.h"
#include "tests/fakes/seeded_random.h"
#include "tests/sim/injected.h"
#include "tests/sim/world_options.h"
#include "tiers/store/store.h"

namespace kvkeep {

class World {
 public:
  explicit World(const WorldOptions& options);
  ~World();

  // REQUIRES: no process runs, all ChunkReaders and Reservations of the last one are gone.
  void Start();
  void Kill();
  // `believed`: everything was left clean, so no process takes anything for lost; Forgot() names
  // what is.
  void PowerCut(bool believed = false);
  // As StoreDeps::between_slices; from the next start on.
  void SetBetweenSlices(std::function<void()> run) { between_slices_ = std::move(run); }
  bool running() const { return store_ != nullptr; }
  const Uuid& boot_id() const { return boot_id_; }
  // REQUIRES: no process runs.
  void LoseArena() { arena_.reset(); }
  // Adds some of the memory that is to come, at most this many blocks. Returns how many came.
  uint64_t AddMemory(uint64_t most_blocks);
  // Sets whether the device is there for the next process. REQUIRES: no process runs.
  void SetAttached(size_t device, bool attached);
  bool attached(size_t device) const { return machines_[device].attached; }
  // The device comes while a process runs; it is attached when `done` gets OK, which a kill may
  // prevent. Returns false if it is on its way already. REQUIRES: it is not attached.
  bool Join(size_t device, std::function<void(absl::Status)> done);
  // The device leaves while a process runs; it is not attached any more when `done` gets OK.
  // Returns false if it is on its way already. REQUIRES: it is attached.
  bool Leave(size_t device, std::function<void(absl::Status)> done);
  // Sets TenantOptions::g3_quota_bytes from the next start on. REQUIRES: no process runs.
  void SetQuota(size_t tenant, uint64_t bytes) {
    options_.store.tenants[tenant].g3_quota_bytes = bytes;
  }
  // Likewise, of all devices.
  void SetDeviceFaults(const FaultOptions& faults) { options_.device_faults = faults; }
  // Sets StoreOptions::g3_capacity_bytes likewise. REQUIRES: all devices are attached.
  void SetG3Capacities(const std::vector<uint64_t>& bytes) {
    options_.store.g3_capacity_bytes = bytes;
  }
  // Makes it another tenant from the next start on. REQUIRES: no process runs.
  void RenameTenant(size_t tenant, const std::string& name) {
    options_.store.tenants[tenant].name = name;
  }
  // Likewise, of all of them.
  void SetTenants(const std::vector<TenantOptions>& tenants) { options_.store.tenants = tenants; }
  // The device fails in everything, disk and index, while it is gone. REQUIRES: it is attached.
  void SetGone(size_t device, bool gone);
  // The device loses its power alone, under a process or between two: unsynced data is as after a
  // power cut, and nothing reports it. The daemon may know of it only as the reason why it ended:
  // between two processes Forgot() does not name it either. Its index may lose unsynced writes,
  // too; in the same boot nothing reports that.
  void DriveLosesPower(size_t device);
  // Blocks of this image were lost so under a process that was not told, and not written again; or
  // the drive lied about them.
  bool Forgot(size_t device, const ExtentList& extents) const;
  // Its record goes with the next loss of power, although it was synced since: likewise.
  bool ForgotRecord(size_t device, const ChunkId& id) const;
  // Blocks of it were written and not synced since.
  bool IsUnsynced(size_t device, const ExtentList& extents) const;
  // For the next process; null: no encryption, whatever the options say.
  void SetKeys(std::shared_ptr<KeyRing> keys) { keys_ = std::move(keys); }
  // With the options' encryption: a key for every tenant.
  const std::shared_ptr<KeyRing>& keys() const { return keys_; }
  // Random choices follow from this seed from now on.
  void Reseed(uint64_t seed);

  Store& store() { return *store_; }
  // How often a store at rest called itself busy.
  uint64_t wakes() const { return wakes_; }
  ManualClock& clock() { return clock_; }
  ManualExecutor& executor() { return executor_; }
  // Batches of the indexes, in a queue of their own so that a test can hold commits back.
  ManualExecutor& index_executor() { return index_executor_; }
  void HoldIndex(bool hold);
  SeededRandom& random() { return random_; }
  MemoryIndex& index(size_t device = 0) { return *machines_[device].index; }
  MemoryArena& arena() { return *arena_; }  // also between two processes, if it outlives one
  MemoryDisk& disk(size_t device = 0) { return *machines_[device].disk; }
  FaultyDevice& device(size_t device = 0) { return *machines_[device].faulty; }
  // The images beyond the node, by name, over all processes; and this process's source of them.
  MemoryBucket& bucket() { return bucket_; }
  MemoryBucketTimes& bucket_times() { return bucket_times_; }
  MemoryRemoteSource& remote() { return *remote_; }
  MemoryRemovalLog& removal_log() { return *removal_log_; }
  MemoryNvmeDevice& nvme(size_t device = 0) { return *machines_[device].nvme; }

  // The medium of the first device rots: bits flip (0), blocks get the bytes of others (1), or the
  // bytes they had long ago (2). Returns which; 3 without a device.
  int DamageDisk();

  // Between two processes, flips bits in the memory that was kept.
  void DamageArena();

  // Runs everything that is queued, with the disks' own work.
  void RunAll();
  // The same, and nothing stays held or stuck.
  void RunToEnd();
  // Returns everything that was injected so far; others move the clock.
  Injected injected() const;
  // Runs one queued task, any; returns false if nothing is queued.
  bool RunOneAtRandom();
  // Advances time by `turn`, ticks, runs everything: two seconds at least, and until nothing is
  // dirty or in flight.
  void Settle(std::chrono::milliseconds turn = std::chrono::milliseconds(100));

 private:
  struct Machine {
    std::unique_ptr<ManualExecutor> executor;  // of the disk: goes on after a kill
    std::shared_ptr<MemoryDisk> disk;
    std::unique_ptr<MemoryIndex> index;
    std::unique_ptr<MemoryDevice> memory;
    std::unique_ptr<FaultyDevice> faulty;
    std::unique_ptr<MemoryNvmeDevice> nvme;
    bool attached = true, leaving = false;
    std::unique_ptr<MemoryDevice> dead;  // requests of a dead process are still under way
  };
  void StopProcess();
  StoreDeps::DeviceDeps Open(size_t device);
  void Close(Machine& machine);
  // Ends all requests of a dead process.
  static void Land(Machine& machine);
  void RunDisk(Machine& machine, size_t pick);
  // `lose` makes an index forget.
  void Lose(size_t device, const std::function<void(MemoryIndex&)>& lose);
  // Checks that no two records of an index claim the same blocks: extents are reused only after
  // their record is gone, after a kill and after a power cut.
  void CheckIndexes();

  WorldOptions options_;
  SeededRandom random_;
  ManualClock clock_;
  ManualExecutor executor_;        // of the process: dropped by a kill
  ManualExecutor index_executor_;  // of the process, too
  bool index_held_ = false;
  std::vector<Machine> machines_;
  Injected injected_;                // by the world itself, and in earlier processes
  std::vector<std::byte> old_disk_;  // the first device as it was once
  Uuid boot_id_;
  MacKey mac_key_{};
  std::shared_ptr<KeyRing> keys_;
  std::unique_ptr<KeyRing> remote_keys_;
  uint64_t starts_ = 0, wakes_ = 0;
  std::function<void()> between_slices_;
  MemoryBucket bucket_;
  MemoryBucketTimes bucket_times_;
  std::unique_ptr<MemoryRemoteSource> remote_;
  std::set<ChunkId> removals_left_;                // beyond the node; over all processes
  std::unique_ptr<MemoryRemovalLog> removal_log_;  // of this process, if there is one
  std::unique_ptr<RemoteSource> source_;
  std::unique_ptr<MemoryArena> arena_;
  std::unique_ptr<Store> store_;
};

}  // namespace kvkeep
