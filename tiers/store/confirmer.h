// Confirmer: reads the header of each chunk that a record of another boot names, before anybody is
// promised the chunk.
//
// After a power cut a record may point at blocks whose data never arrived, or that hold another
// image. The device's ConfirmQueue says which chunk is next. If the header is another chunk's, the
// record and its chunk are removed.
//
// Owned by Disk (disk.h). The store's lock protects it; reads end on any thread and take the lock
// themselves.
#pragma once

#include "tiers/store/chunks.h"
#include "tiers/store/committer.h"
#include "tiers/store/confirm_queue.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/image_verifier.h"
#include "tiers/store/records.h"

namespace kvkeep::store_internal {

class Confirmer {
 public:
  // All are borrowed.
  Confirmer(const StoreDeps& deps, Chunks* chunks, DeviceTiers* tiers, Records* records,
            Committer* committer, const ImageVerifier* verifier);

  // Begins the reads that may begin now. Once all records of the device are confirmed, its next
  // sync writes that into the mark. Called by the device's pump, too.
  void Pump(DeviceTier& tier) STORE_LOCKED;

 private:
  void OnRead(ConfirmQueue::Entry confirm, AlignedPage& page, absl::Status status);

  Chunks& chunks_;
  DeviceTiers& tiers_;
  Records& records_;
  Committer& committer_;
  const ImageVerifier& verifier_;
  const StoreDeps& deps_;
};

}  // namespace kvkeep::store_internal
