// WriteBacker: writes chunks from G2 to the devices of G3.
//
//   Enqueue --> queued, on a device --> writing --> Committer --> stored
//      \__ waits unbacked, in its tenant's queue (unbacked_queue.h): offered again
//
// A chunk's copy in G2 stays until the chunk is stored. A chunk waits unbacked when the dirty
// budget is used up or no device takes writes. It can be evicted meanwhile, so that a burst of puts
// evicts its own chunks rather than hot ones. A chunk that the admission does not want is offered
// again when it is used.
//
// Owned by Disk (disk.h). The store's lock protects it. Images are made and encrypted on the copy
// executor. Writes end on any thread and take the lock themselves.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tiers/policy/admission_policy.h"
#include "tiers/store/cipher_buffers.h"
#include "tiers/store/committer.h"
#include "tiers/store/device_space.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

class WriteBacker final : public Committer::Host {
 public:
  using Admissions = std::vector<std::unique_ptr<AdmissionPolicy>>;  // by TenantId

  // SwapAdmissions comes before the first chunk. `keys`: by TenantId; null: images are written
  // without encryption. All pointers are borrowed.
  WriteBacker(const StoreOptions& options, const StoreDeps& deps, Chunks* chunks,
              DeviceTiers* tiers, DeviceSpace* space, Committer* committer,
              std::vector<const DataKey*> keys, std::shared_ptr<CipherBuffers> buffers);

  // ---- one chunk. REQUIRES: it is resident in G2, and not in G3.
  // Queues the chunk's write and begins the writes that may begin now. `forced`: ignores the dirty
  // budget and the admission.
  void Queue(ChunkSlot slot, const std::optional<ChunkKey>& parent, bool forced) STORE_LOCKED;
  // Queues the chunk's write. Returns the device that has to be pumped; null: the chunk stays
  // unbacked.
  DeviceTier* Enqueue(ChunkSlot slot, const std::optional<ChunkKey>& parent, bool forced)
      STORE_LOCKED;
  // For a chunk that is not on its way to a device. Callers that wait until it is durable now wait
  // for a device that is coming. If none is coming, they get Unavailable.
  void WaitForDevice(ChunkSlot slot) STORE_LOCKED;

  // ---- what may go on now
  void PumpWrites(DeviceTier& tier) STORE_LOCKED override;
  void PumpUnbacked(DeviceTier& tier) STORE_LOCKED override;
  // Queues all chunks that wait unbacked, whatever the budget says, since the store drains. May
  // yield.
  void DrainUnbacked(Section& section) STORE_LOCKED;
  // Queues the chunks that are to be durable and that no device took so far. May yield.
  void WriteForWaiters(Section& section) STORE_LOCKED;
  bool waits_for_device() const STORE_LOCKED { return wait_for_device_; }

  // ---- which chunks are worth a write
  void SwapAdmissions(Admissions& admissions) STORE_LOCKED { admissions_.swap(admissions); }
  AdmissionPolicy& admission(TenantId tenant) STORE_LOCKED { return *admissions_[tenant.value()]; }

  // Checks the chunks that wait unbacked (KVKEEP_CHECK).
  void CheckInvariants() const STORE_LOCKED;

 private:
  bool Admit(Chunk& chunk) STORE_LOCKED;
  // Begins the queued writes that may begin now, and gives up those that no device takes.
  void BeginWrites(DeviceTier& tier) STORE_LOCKED;
  // Queues the write of a chunk again, on another device, as its device takes no writes now.
  // Returns false if it was not moved.
  bool MoveQueued(const WriteLane::Queued& queued) STORE_LOCKED;
  void StartWrite(ChunkSlot slot, const std::optional<ChunkKey>& parent) STORE_LOCKED;
  void SubmitWrite(ChunkSlot slot, WriteBack* write, const ExtentList& g2,
                   const ImagePlacement& placement);
  void SubmitEncrypted(ChunkSlot slot, WriteBack* write, const ExtentList& g2, ImageHeader header);
  void OnWritten(ChunkSlot slot, WriteBack* write, uint64_t bytes, const absl::Status& status);
  DeviceTier* EnqueueUnbacked(ChunkSlot slot) STORE_LOCKED;

  Chunks& chunks_;
  DeviceTiers& tiers_;
  DeviceSpace& space_;
  Committer& committer_;
  const StoreDeps& deps_;
  const uint64_t most_in_flight_bytes_;
  const std::vector<const DataKey*> keys_;
  const std::shared_ptr<CipherBuffers> cipher_buffers_;
  Admissions admissions_ STORE_GUARDED;
  bool wait_for_device_ STORE_GUARDED = false;  // somebody waits for a device that is coming
};

}  // namespace kvkeep::store_internal
