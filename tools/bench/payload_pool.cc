#include "tools/bench/payload_pool.h"

#include <utility>
#include <vector>

#include "tiers/base/status_macros.h"

namespace kvkeep::bench {
namespace {

class OwnMemory final : public PayloadPool {
 public:
  explicit OwnMemory(uint64_t bytes) : bytes_(bytes) {}
  std::span<std::byte> memory() const override { return bytes_; }

 private:
  mutable std::vector<std::byte> bytes_;
};

class Staging final : public PayloadPool {
 public:
  explicit Staging(client::StagingBuffer buffer) : buffer_(std::move(buffer)) {}
  std::span<std::byte> memory() const override { return buffer_.memory(); }

 private:
  const client::StagingBuffer buffer_;
};

}  // namespace

std::unique_ptr<PayloadPool> MakeOwnPool(uint64_t bytes) {
  return std::make_unique<OwnMemory>(bytes);
}

absl::StatusOr<std::unique_ptr<PayloadPool>> MakePool(ClientContext* context, uint64_t bytes) {
  if (!context->local) return MakeOwnPool(bytes);
  KVKEEP_ASSIGN_OR_RETURN(client::StagingBuffer buffer, context->client->AllocateStaging(bytes));
  return std::make_unique<Staging>(std::move(buffer));
}

}  // namespace kvkeep::bench
