#include "tools/bench/payload_pool.h"

#include <vector>

namespace kvkeep::bench {
namespace {

class OwnMemory final : public PayloadPool {
 public:
  explicit OwnMemory(uint64_t bytes) : bytes_(bytes) {}
  std::span<std::byte> memory() const override { return bytes_; }

 private:
  mutable std::vector<std::byte> bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PayloadPool>> MakePool(ClientContext*, uint64_t bytes) {
  return std::make_unique<OwnMemory>(bytes);
}

}  // namespace kvkeep::bench
