// NullDevice: takes all writes at once and keeps nothing; reads bring what was there. For what
// looks at the store's books alone. Thread-safe.
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
