// MemorySource: payloads in memory of the client, staging or registered, that are complete when the
// put comes. Thread-safe.
#pragma once

#include "server/local/context.h"
#include "server/local/put_plan.h"
#include "server/local/put_source.h"

namespace kvkeep {

class MemorySource final : public PutSource {
 public:
  // `plan` and `put` own this and outlive it.
  MemorySource(std::shared_ptr<const LocalContext> context, PutPlan* plan, Put* put);

  void Fetch(std::span<const PutPiece> pieces) override;
  absl::Status Fill(const PutPiece& piece, Wait wait, Reservation* space) override;
  void Drop() override;
  bool MayFillOnLoop() const override { return plan_->in_staging(); }

 private:
  const std::shared_ptr<const LocalContext> context_;
  PutPlan* const plan_;
  Put* const put_;
};

}  // namespace kvkeep
