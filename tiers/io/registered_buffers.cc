#include "tiers/io/registered_buffers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/units.h"
#include "tiers/io/io_engine.h"

namespace kvkeep {

absl::Status RegisteredBuffers::CheckNext(std::span<const std::byte> memory) const {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  if (memory.empty() || memory.size() > IoEngine::kMaxRegisteredBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a registered buffer has 1 to ",
                                                   IoEngine::kMaxRegisteredBytes, " bytes, not ",
                                                   memory.size()));
  }
  if (begin % kBlockBytes != 0 || memory.size() % kBlockBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a registered buffer is aligned to ", kBlockBytes, " bytes"));
  }
  for (const Buffer& buffer : buffers_) {
    if (begin < buffer.end && buffer.begin < begin + memory.size()) {
      return absl::InvalidArgumentError("the memory overlaps a buffer registered before");
    }
  }
  if (buffers_.size() == IoEngine::kMaxRegisteredBuffers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", IoEngine::kMaxRegisteredBuffers, " registered buffers are used"));
  }
  return absl::OkStatus();
}

void RegisteredBuffers::Add(std::span<const std::byte> memory) {
  KVKEEP_CHECK(CheckNext(memory).ok());
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  const auto at =
      std::upper_bound(buffers_.begin(), buffers_.end(), begin,
                       [](uintptr_t value, const Buffer& b) { return value < b.begin; });
  buffers_.insert(at, Buffer{begin, begin + memory.size(), next_slot()});
}

std::optional<uint32_t> RegisteredBuffers::Find(const std::byte* data, size_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  auto after = std::upper_bound(buffers_.begin(), buffers_.end(), begin,
                                [](uintptr_t value, const Buffer& b) { return value < b.begin; });
  if (after == buffers_.begin()) return std::nullopt;
  const Buffer& buffer = *std::prev(after);
  if (begin >= buffer.end || bytes > buffer.end - begin) return std::nullopt;
  return buffer.slot;
}

}  // namespace kvkeep
