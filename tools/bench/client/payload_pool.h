// PayloadPool: the payloads of puts, one after the other in one memory. On the local path it is
// staging memory, which only the daemon reads in a put. On other paths, and for loads, it is the
// process's own memory. One thread fills it; any thread may read.
#pragma once

#include <absl/status/statusor.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "client/client.h"
#include "tools/bench/client/content.h"

namespace kvkeep::bench {

class PayloadPool {
 public:
  explicit PayloadPool(uint64_t bytes) : own_(bytes), memory_(own_) {}
  explicit PayloadPool(client::StagingBuffer staging)
      : staging_(std::move(staging)), memory_(staging_.memory()) {}
  PayloadPool(const PayloadPool&) = delete;
  // Makes a pool in `client`'s staging memory. ResourceExhausted: the daemon gives a session less.
  static absl::StatusOr<std::unique_ptr<PayloadPool>> Staging(client::Client* client,
                                                              uint64_t bytes) {
    absl::StatusOr<client::StagingBuffer> buffer = client->AllocateStaging(bytes);
    if (!buffer.ok()) return buffer.status();
    return std::make_unique<PayloadPool>(*std::move(buffer));
  }

  // Fills the pool with payloads of `size` bytes, unless it has them already.
  void Fill(uint64_t seed, uint64_t size) {
    if (filled_with_ == size) return;
    filled_with_ = size;
    for (uint64_t i = 0; i < count(size); ++i) {
      FillPayload(seed, i, memory_.subspan(i * size, size));
    }
  }
  uint64_t count(uint64_t size) const { return memory_.size() / size; }
  std::span<const std::byte> payload(uint64_t number, uint64_t size) const {
    return memory_.subspan(number * size, size);
  }

 private:
  std::vector<std::byte> own_;
  client::StagingBuffer staging_;
  const std::span<std::byte> memory_;
  uint64_t filled_with_ = 0;
};

}  // namespace kvkeep::bench
