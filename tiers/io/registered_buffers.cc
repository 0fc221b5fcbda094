#include "tiers/io/registered_buffers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/units.h"
#include "tiers/io/io_engine.h"

namespace kvkeep {

std::vector<RegisteredBuffers::Buffer>::const_iterator RegisteredBuffers::After(
    uintptr_t address) const {
  return std::upper_bound(buffers_.begin(), buffers_.end(), address,
                          [](uintptr_t value, const Buffer& b) { return value < b.begin; });
}

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
  const auto after = After(begin);
  if ((after != buffers_.begin() && begin < std::prev(after)->end) ||
      (after != buffers_.end() && after->begin < begin + memory.size())) {
    return absl::InvalidArgumentError("the memory overlaps a buffer registered before");
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
  buffers_.insert(After(begin), Buffer{begin, begin + memory.size(), next_slot()});
}

std::optional<uint32_t> RegisteredBuffers::Find(const std::byte* data, size_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const auto after = After(begin);
  if (after == buffers_.begin()) return std::nullopt;
  const Buffer& buffer = *std::prev(after);
  if (begin >= buffer.end || bytes > buffer.end - begin) return std::nullopt;
  return buffer.slot;
}

}  // namespace kvkeep
