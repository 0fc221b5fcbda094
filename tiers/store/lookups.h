// Lookups: the calls that look chunks up: lookup with its lease, touch, prefetch, and what is
// searched for beyond the node.
//
// A lookup that searches is over when the search is; the caller then asks again, and is told what
// is on its way (LookupOrSearch). Owns nothing; the contracts of the calls stand in store.h. They
// take the store's lock.
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

  // What it works on; all are borrowed. `beyond`: null: nothing lies beyond the node.
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

  // `searched`: null: nothing is searched for, whatever is missing.
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
  // Searches for what the lookup lacks. Returns false, and has ended the recall, if that is not
  // worth it.
  bool SearchIfWorth(Section& section, const LookupRequest& request, const LookupState& lookup,
                     const RecallingPtr& recalling) STORE_LOCKED;

  const StoreOptions& options_;  // of the start
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
