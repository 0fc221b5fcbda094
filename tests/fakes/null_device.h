// NullDevice: accepts all writes at once and stores nothing; reads leave the buffer unchanged. For
// tests of the store's bookkeeping only. Thread-safe.
#pragma once

#include <utility>

#include "tiers/io/device.h"

namespace kvkeep {

class NullDevice final : public Device {
 public:
  explicit NullDevice(uint64_t bytes) : bytes_(bytes) {}
  void Submit(IoOperation operation) override { std::move(operation.done)(absl::OkStatus()); }
  absl::Status Sync() override { return absl::OkStatus(); }
  uint64_t size_bytes() const override { return bytes_; }

 private:
  const uint64_t bytes_;
};

}  // namespace kvkeep
