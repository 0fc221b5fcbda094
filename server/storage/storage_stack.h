// StorageStack: arena, I/O engines, devices, executors and the store over them, built in order and
// torn down in the order that leaves no callback without its object.
//
// Threads: a copy pool; for every device those of its I/O engine and of its place (device_place.h).
// Maintenance (Tick) is the caller's, from one thread. Not thread-safe itself; the store is.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/observe/log.h"
#include "server/observe/server_state.h"
#include "server/storage/copy_pool.h"
#include "server/storage/device_place.h"
#include "server/storage/held_executor.h"
#include "server/storage/io_engines.h"
#include "server/storage/known_devices.h"
#include "server/storage/storage_options.h"
#include "tiers/base/executor.h"
#include "tiers/nvme/key_ring_file.h"
#include "tiers/nvme/removal_log.h"
#include "tiers/remote/g4.h"
#include "tiers/store/store.h"

namespace kvkeep {

class StorageStack {
 public:
  // Recovers G2's chunks. Devices join by themselves, each when it can. Open waits 200 ms for them,
  // and waits for each `required` one until it is open or cannot be. InvalidArgument: the
  // configuration is wrong. Any other error: the start cannot work. `log` and `state` must outlive
  // the stack.
  static absl::StatusOr<std::unique_ptr<StorageStack>> Open(const StorageOptions& options,
                                                            const Log* log, ServerState* state);
  // REQUIRES: AwaitQuiet said true, or the places are stopped.
  ~StorageStack();
  StorageStack(const StorageStack&) = delete;
  StorageStack& operator=(const StorageStack&) = delete;

  Store* store() { return store_.get(); }
  Arena& arena() { return *arena_; }
  IoEngines& io() { return io_; }
  Executor* copy_executor() { return copy_pool_->threads(); }
  Executor* background_executor() { return copy_pool_->threads()->background(); }
  // Runs probes on the pool's threads (LoopWatch).
  Executor* copy_probe() { return copy_pool_->threads()->urgent(); }
  // Returns one line for the log: the arena, and the copy threads if they are on NUMA nodes.
  std::string describe() const;
  // Returns the store's snapshot, with the devices that are configured but not there.
  StoreSnapshot snapshot() const;
  // Returns the state of G4; none if nothing lies beyond the node.
  std::optional<G4Snapshot> g4() const;
  // Returns what asks the other nodes of the fleet; null: the node has no peers. It asks nobody
  // before it is given peers.
  FleetSource* fleet() { return fleet_.get(); }
  // Hides all that lies in G4 from the fleet: see G4::BeginEpoch. `done` runs on the copy executor.
  void ClearG4(absl::AnyInvocable<void(absl::Status) &&> done);

  // Does the store's periodic work, and registers the arena for I/O, segment by segment. A segment
  // is registered once its pages are there, as pinning missing pages would hold up the I/O threads.
  // Call it as often as Store::Tick; it returns the same.
  bool Tick();
  // Logs the devices that are not here, and from now on devices that come or fail. Call when the
  // daemon is about to serve.
  void BeginLog();
  // Sets what StoreDeps::wake calls. Call before the first Tick.
  void OnWake(std::function<void()> wake) { wake_ = std::move(wake); }

  // Calls Store::SetLimits; an error changes nothing. REQUIRES: the same paths as at Open.
  absl::Status SetLimits(const StorageOptions& options);

  // Waits until no read, write, commit or callback is under way. REQUIRES: nobody calls the store
  // any more. Returns false if `timeout` passed first: then this must not be destroyed; only the
  // process can be ended.
  bool AwaitQuiet(std::chrono::nanoseconds timeout);

 private:
  StorageStack(const Log* log, ServerState* state);
  absl::Status OpenAll(const StorageOptions& options);
  // Ends all attempts to open devices. Returns false if a drive still hangs at `deadline`.
  bool StopPlaces(MonotonicTime deadline);
  // REQUIRES: the devices' locks were taken, which prove that no I/O of a dead process is left. If
  // `unsure_devices_` names devices, these may still have such I/O, and the arena takes new pages,
  // which that I/O cannot reach.
  absl::Status OpenArena(const StorageOptions& options);
  // Warns once of a cgroup whose limit the arena all but fills.
  void WarnOfTightMemory() const;
  // Opens the tenants' keys, for encryption at rest. InvalidArgument: the master key is not the
  // right one.
  absl::Status OpenKeys(const StorageOptions& options);
  // Returns false while segments are left to register.
  bool RegisterSegments();
  // Looks once a second for memory for the rest of the arena. Returns true if some came, and more
  // may.
  bool TakeMemory();
  void WarnOfPart() const;
  // Opens G4, which lies beyond the node. InvalidArgument: it is configured wrongly.
  absl::Status OpenG4(const StorageOptions& options);
  absl::Status OpenFleet(const StorageOptions& options);
  // Logs changes of G4's state: well, away, misconfigured, full.
  void TellOfG4(const ObjectStoreHealth& health) const;
  void TellOfG4Keys(const absl::Status& renewal) const;
  // Returns how engines are made: with buffers that all of them share, if the kernel can do that.
  IoEngineOptions ShareBuffers(const StorageOptions& options);
  absl::Status OpenDevices(const StorageOptions& options);
  // Returns OK, or why the start cannot work with this device.
  absl::Status Judge(const NvmeDeviceOptions& options, const DevicePlace& place) const;
  absl::Status OpenStore(const StorageOptions& options);
  static StoreOptions ForStore(const StorageOptions& options);  // with the devices' capacities
  void PassThroughPools();
  bool NothingHeld() const;

  const Log* const log_;
  ServerState* const state_;
  StoreIdentity identity_;
  std::vector<std::string> unsure_devices_;  // an earlier process may have I/O under way there
  bool said_ready_ = false;                  // it is logged that the arena is ready
  bool to_come_ = false;                     // part of the arena has no memory yet
  MonotonicTime memory_look_at_{0};          // when TakeMemory looks again

  // Destroyed from the last to the first: the store while devices and executors still exist (it
  // points to them), devices before their engines, the arena before the pool that prefaults it.
  std::unique_ptr<G4> g4_;                       // null: nothing lies beyond the node
  std::unique_ptr<FileRemovalLog> removal_log_;  // null: likewise
  std::unique_ptr<KeyRingFile> key_file_;  // keeps others from changing it; null: no encryption
  std::unique_ptr<KeyRing> keys_;
  std::unique_ptr<CopyPool> copy_pool_;
  std::unique_ptr<FleetSource> fleet_;      // null: the node has no peers
  std::unique_ptr<HeldExecutor> prefault_;  // in the copy pool, once the store serves
  std::unique_ptr<Arena> arena_;
  IoEngines io_;
  Mutex known_mu_;
  std::optional<KnownDevices> known_ ABSL_GUARDED_BY(known_mu_);
  std::vector<std::unique_ptr<DevicePlace>> places_;  // as configured
  std::function<void()> wake_;                        // null until there is a ticker
  std::unique_ptr<Store> store_;
};

}  // namespace kvkeep
