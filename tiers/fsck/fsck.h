// kvkeep fsck: checks one G3 device offline, against itself: superblock and data files, RocksDB and
// its records, records against image headers, every payload byte against its checksum. And
// rebuilds a lost index from the images.
//
// Fsck changes no byte of the device. It takes the locks that a daemon holds (Unavailable while one
// runs), opens RocksDB and the data files read-only, and needs bounded memory: three bits for
// each block of the device (96 MiB for a TiB), and some MiB for each thread.
//
// RebuildIndex makes a new index in a fresh directory and puts it in the place of the old one in
// one step; the old one stays beside it. The new one has the images that the live map
// (tiers/nvme/live_map.h) names and whose every byte is right. So it never brings back a chunk
// whose removal (delete, clear, eviction) the lost index had committed; after a power cut this
// holds for synced removals (one sync a second). Images that the map does not name, or names in a
// damaged page, are forgotten. Images are looked for nowhere else, least of all in payloads. Needs
// about 150 bytes of memory for each chunk on top.
//
// Errors (cannot check): Unavailable (in use), NotFound (no device there), FailedPrecondition (of
// another store or version; not finished), InvalidArgument (options). One call is one thread's; it
// starts others for itself.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "tiers/crypt/key_ring.h"
#include "tiers/fsck/report.h"
#include "tiers/nvme/nvme_device.h"

namespace kvkeep {

struct FsckProgress {
  absl::string_view phase;  // "images", "free space"
  uint64_t images = 0;      // done with
  uint64_t read_bytes = 0;
};

struct FsckOptions {
  std::string dir;
  StoreIdentity identity;  // of the store that the device belongs to: images carry its MAC
  Uuid boot_id;            // this boot (ReadBootId): whether a power cut lies in between
  // Keys of encrypted images; null: only their headers are checked, and the report counts them.
  const KeyRing* keys = nullptr;
  bool headers_only = false;   // fast: no payloads, no search for orphans
  uint32_t threads = 4;        // 1 to 64
  size_t max_findings = 1000;  // in the report's list, at most 1,000,000; all are counted
  // Called now and then, on the calling thread.
  std::function<void(const FsckProgress&)> progress;

  absl::Status Validate() const;
};

absl::StatusOr<FsckReport> Fsck(const FsckOptions& options);

// DataLoss when superblock or data files are not whole, as an index would not help, or when the
// live map cannot be read, as the new index would be empty.
absl::StatusOr<RebuildReport> RebuildIndex(const FsckOptions& options);

}  // namespace kvkeep
