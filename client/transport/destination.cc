#include "client/transport/destination.h"

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/stream_copy.h"

namespace kvkeep::client {

Destination::Destination(Runs runs) : runs_(runs) {
  for (const std::span<std::byte> run : runs) bytes_ += run.size();
}

void Destination::Fill(std::span<const std::byte> bytes, PayloadCopier* checksums) {
  while (!bytes.empty()) {
    KVKEEP_CHECK(next_ < runs());
    const std::span<std::byte> to = run(next_);
    const size_t part = std::min<uint64_t>(bytes.size(), to.size() - done_);
    std::byte* const at = to.data() == nullptr ? nullptr : to.data() + done_;
    if (checksums != nullptr) {
      checksums->Append(at, bytes.first(part));
    } else if (at != nullptr) {
      StreamCopy(at, bytes.first(part));
    }
    bytes = bytes.subspan(part);
    done_ += part;
    if (done_ < to.size()) continue;
    ++next_;
    done_ = 0;
  }
}

std::span<std::byte> Destination::Place(uint64_t bytes) const {
  if (bytes == 0 || next_ == runs()) return {};
  const std::span<std::byte> to = run(next_);
  if (to.data() == nullptr || to.size() - done_ < bytes) return {};
  return to.subspan(done_, bytes);
}

void Destination::Skip(uint64_t bytes) {
  done_ += bytes;
  KVKEEP_CHECK(done_ <= run(next_).size());
  if (done_ < run(next_).size()) return;
  ++next_;
  done_ = 0;
}

Destinations::Destinations(const GetOptions& options) {
  if (options.destination_runs.empty()) return;
  starts_.reserve(options.destination_runs.size() + 1);
  starts_.push_back(0);
  for (const uint32_t runs : options.destination_runs) starts_.push_back(starts_.back() + runs);
}

Destination Destinations::Of(GetOptions& options, size_t chunk, uint64_t bytes) const {
  if (options.allocate) return Destination(options.allocate(chunk, bytes));
  if (starts_.empty()) return Destination(options.destinations[chunk]);
  const size_t runs = starts_[chunk + 1] - starts_[chunk];
  return Destination(options.destinations.subspan(starts_[chunk], runs));
}

}  // namespace kvkeep::client
