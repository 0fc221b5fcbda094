// Lookups: the calls that look chunks up: lookup with its lease, touch, prefetch, and searches
// beyond the node.
//
// A lookup that searches ends with its search. The caller then asks again, and is told which chunks
// are on their way (LookupOrSearch). Owns nothing. The contracts of the calls are in store.h. The
// calls take the store's lock.
#pragma once

#include <absl/functional/any_invocable.h>

#include <optional>

#include "tiers/store/beyond_node.h"
#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/filler.h"
#include "tiers/store/finder.h"
#include "tiers/store/granter.h"
#include "tiers/store/owners.h"
#include "tiers/store/promoter.h"
#include "tiers/store/reuse_meter.h"
#include "tiers/store/sessions.h"

namespace kvkeep::store_internal {

class Lookups {
 public:
  using SearchedCallback = absl::AnyInvocable<void() &&>;
  using RecallCallback = absl::AnyInvocable<void(absl::StatusOr<uint64_t>) &&>;

  // The objects that it works on. All are borrowed. `beyond`: null if nothing lies beyond the node.
  struct Parts {
    Chunks* chunks;
    DeviceTiers* tiers;
    Filler* filler;
    Promoter* promoter;
    Finder* finder;
    Granter* granter;
    Sessions* sessions;
    const Owners* owners;
    ReuseMeter* reuse;
    BeyondNode* beyond;
  };
  Lookups(const StoreOptions& options, Parts parts);

  // If `searched` is null, nothing is searched for, whatever is missing.
  std::optional<absl::StatusOr<LookupResult>> LookupOrSearch(const SessionToken& token,
                                                             const LookupRequest& request,
                                                             SearchedCallback searched);
  absl::StatusOr<uint64_t> Touch(const SessionToken& token, const ChunkSet& chunks);
  absl::StatusOr<PrefetchResult> Prefetch(const SessionToken& token, const ChunkSet& chunks);
  void Recall(const SessionToken& token, const ChunkSet& chunks, RecallCallback done);
  void AskBeyond(const SessionToken& token, const LookupRequest& request,
                 absl::AnyInvocable<void(bool) &&> asked);

 private:
  absl::Status MayAskBeyond(TenantId asks) STORE_LOCKED;
  // Searches for the chunks that the lookup lacks. If that is not worth it, ends the recall and
  // returns false.
  bool SearchIfWorth(Section& section, const LookupRequest& request, const LookupState& lookup,
                     const RecallingPtr& recalling) STORE_LOCKED;

  const StoreOptions& options_;  // as at the start
  Chunks& chunks_;
  DeviceTiers& tiers_;
  Filler& filler_;
  Promoter& promoter_;
  Finder& finder_;
  Granter& granter_;
  Sessions& sessions_;
  const Owners& owners_;
  ReuseMeter& reuse_;
  BeyondNode* const beyond_;
};

}  // namespace kvkeep::store_internal
