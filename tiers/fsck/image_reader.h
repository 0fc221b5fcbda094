// Reads images from a device and judges them. Callable on any thread, each with its own buffer.
#pragma once

#include <absl/functional/function_ref.h>

#include <optional>
#include <string>

#include "tiers/base/clock.h"
#include "tiers/crypt/key_ring.h"
#include "tiers/fsck/offline_device.h"

namespace kvkeep::fsck_internal {

// Why an image is not what it should be.
struct ImageFault {
  FsckProblem problem = FsckProblem::kHeader;
  BlockNumber where;
  std::string what;
  // True if the image's first block has no header of the record's placement: other bytes, or the
  // header of another image. False if it cannot be read.
  bool is_not_there = false;
};

struct FoundImage {
  ImageHeader header;
  Digest128 root;
  bool unchecked = false;  // encrypted, and its key is not there
};

// Reads the header page at `first`, which must be one of ours and (unless null) of this record.
std::optional<ImageFault> ReadHeader(const OfflineDevice& device, const MacKey& mac_key,
                                     BlockNumber first, const IndexRecord* record,
                                     ReadBuffer& buffer, FoundImage* image);
// Reads the rest of the image and checks it against its checksums and tags. An encrypted image
// without its key (`keys` may be null) is not read, and is marked in `image`.
std::optional<ImageFault> ReadPayload(const OfflineDevice& device, const KeyRing* keys,
                                      ReadBuffer& buffer, FoundImage* image);

// Calls `work(i, buffer)` for all i below `count`, on `threads` threads of which the caller's is
// one; `after_each` on the caller's only.
void InParallel(size_t count, uint32_t threads, absl::FunctionRef<void(size_t, ReadBuffer&)> work,
                absl::FunctionRef<void()> after_each);

// Reports progress to whoever waits for the check, but not too often.
class ProgressTeller {
 public:
  ProgressTeller(const FsckOptions& options, const OfflineDevice& device)
      : options_(options), device_(device) {}
  void Tell(absl::string_view phase, uint64_t images);

 private:
  const FsckOptions& options_;
  const OfflineDevice& device_;
  MonotonicTime last_{0};
};

}  // namespace kvkeep::fsck_internal
