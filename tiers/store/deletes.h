// Deletes: the calls that delete chunks, and those that wait until a delete is final.
//
// Lookups do not find a chunk any more once Delete has returned. No kill brings it back once
// WhenDeleted has called back: its mark in G2 is cleared, the indexes have its removal, and the log
// that the next process reads has the removal of what may lie beyond the node.
//
// Owns nothing. The contracts of the calls are in store.h. The calls take the store's lock.
#pragma once

#include <optional>

#include "tiers/store/beyond_node.h"
#include "tiers/store/chunks.h"
#include "tiers/store/committer.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/records.h"
#include "tiers/store/reuse_meter.h"
#include "tiers/store/sessions.h"

namespace kvkeep::store_internal {

class Deletes {
 public:
  // The objects that it works on. All are borrowed. `beyond`: null if nothing lies beyond the node.
  struct Parts {
    Chunks* chunks;
    DeviceTiers* tiers;
    Records* records;
    Committer* committer;
    Sessions* sessions;
    ReuseMeter* reuse;
    BeyondNode* beyond;
  };
  Deletes(const Clock* clock, Parts parts);

  absl::StatusOr<uint64_t> Delete(const SessionToken& token, const ChunkSet& chunks);
  uint64_t Clear(const std::optional<NamespaceDigest>& ns);
  void WhenDeleted(bool durable, StatusCallback done);

 private:
  const Clock& clock_;
  Chunks& chunks_;
  DeviceTiers& tiers_;
  Records& records_;
  Committer& committer_;
  Sessions& sessions_;
  ReuseMeter& reuse_;
  BeyondNode* const beyond_;
};

}  // namespace kvkeep::store_internal
