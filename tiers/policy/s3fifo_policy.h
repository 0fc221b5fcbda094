// S3FifoPolicy: after J. Yang et al., "FIFO Queues Are All You Need for Cache Eviction", SOSP 2023.
//
// Two queues. New chunks go into the small one, a tenth of all; who is not asked for kWorthKeeping
// times before it comes to its end goes, and leaves a ghost. Who is, and who comes back while its
// ghost is there, goes into the main one, where each chunk gets another round for every time that
// it was asked for, up to three. A hit moves nothing. Ghosts are as many as the main queue's
// chunks.
#pragma once

#include "tiers/policy/ghosts.h"
#include "tiers/policy/list_policy.h"

namespace kvkeep {

class S3FifoPolicy final : public ListPolicy {
 public:
  static constexpr uint32_t kWorthKeeping = 2;
  static constexpr uint32_t kMostHits = 3;

  explicit S3FifoPolicy(const PolicyOptions& options);

  absl::string_view name() const override { return "s3fifo"; }
  std::span<std::byte> MemoryDue() override;

 private:
  static constexpr int kSmall = 0, kMain = 1;
  // Node::value: hits, and whether it is of the main queue.
  static constexpr uint32_t kHits = 3, kOfMain = 4;

  int ListOfTouched(Node& node, int from) override;
  int ListOfNew(Node& node, const NewChunk& chunk, MonotonicTime now) override;
  void Erased(ChunkSlot slot, const Node& node, int from, EraseReason reason) override;
  ChunkSlot Next() override;
  std::vector<int> ListOrder() const override { return {kSmall, kMain}; }

  Ghosts ghosts_;
  size_t small_ = 0;  // chunks of the small queue, those aside included
};

}  // namespace kvkeep
