#include "server/local/run_table.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/status_macros.h"

namespace kvkeep {

void RunTable::Reserve(size_t runs) {
  runs_.reserve(runs);
  starts_.reserve(runs + 1);
}

void RunTable::Add(uint32_t memory, uint64_t offset, uint32_t bytes) {
  runs_.push_back({.memory = memory, .offset = offset});
  starts_.push_back(starts_.back() + bytes);
}

absl::Status RunTable::CheckChunk(size_t chunk, uint32_t first_run, uint32_t runs,
                                  uint32_t payload_bytes) const {
  const uint64_t end = uint64_t{first_run} + runs;
  if (end > runs_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunks[", chunk, "]: its runs end at ", end, ", runs is ", runs_.size()));
  }
  const uint64_t sum = starts_[end] - starts_[first_run];
  if (sum == payload_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("chunks[", chunk, "].payload_bytes is ",
                                                 payload_bytes, ", its runs have ", sum));
}

absl::Status RunTable::ForEach(uint32_t first_run, uint64_t offset, uint64_t bytes,
                               absl::FunctionRef<absl::Status(const Part&)> each) const {
  uint64_t at = starts_[first_run] + offset;  // in the row of all runs
  const uint64_t end = at + bytes;
  // The last run that starts at or before it.
  size_t run =
      static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), at) - starts_.begin()) -
      1;
  while (at < end) {
    const uint64_t part = std::min(end, starts_[run + 1]) - at;
    KVKEEP_RETURN_IF_ERROR(each({.memory = runs_[run].memory,
                                 .offset = runs_[run].offset + (at - starts_[run]),
                                 .bytes = part}));
    at += part;
    ++run;
  }
  return absl::OkStatus();
}

}  // namespace kvkeep
