// PartsSource: the payload of a put in parts: one chunk in staging memory, which the client goes on
// writing while it is copied.
//
// A word of that memory says how many bytes are there. The client can take the memory away for a
// moment, so copy threads read the word, never the loop. One look is under way at a time; a look
// that is asked for meanwhile follows it.
//
//   waiting --the word says all--> all is there
//      \----GiveUp, Cancel, a word that makes no sense, Drop----> stopped: nothing is waited for
#pragma once

#include "server/local/context.h"
#include "server/local/memory_source.h"
#include "server/local/put_plan.h"
#include "server/local/put_source.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class PartsSource final : public PutSource {
 public:
  // `plan` and `put` own this and outlive it. REQUIRES: plan->in_parts().
  PartsSource(std::shared_ptr<const LocalContext> context, PutPlan* plan, Put* put);

  void Fetch(std::span<const PutPiece> pieces) override;
  absl::Status Fill(const PutPiece& piece, Wait wait, Reservation* space) override;
  void Drop() override;
  void Cancel() override;
  void Look() override;
  std::optional<uint64_t> awaited_piece() override;
  bool GiveUp(const absl::Status& why) override;

 private:
  // What one look found.
  struct Seen {
    size_t ready_pieces = 0;
    absl::Status wrong;  // not OK: the word made no sense, so this look stopped the wait
    bool again = false;  // another look was asked for meanwhile
  };

  // Returns true while more is waited for.
  bool filling() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  size_t filled_pieces() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns false if nothing was waited for.
  bool Stop();
  Seen LookOnce(const StagingMemory& staging);
  void Tell(const Seen& seen);

  const std::shared_ptr<const LocalContext> context_;
  PutPlan* const plan_;
  Put* const put_;
  const uint64_t payload_bytes_;
  MemorySource memory_;

  Mutex mu_;
  uint64_t filled_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool looking_ ABSL_GUARDED_BY(mu_) = false, look_again_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace kvkeep
