// NvmeDevice: one path of G3: superblock, lock, data files and this device's own chunk index.
//
// A directory on XFS or ext4:
//   superblock        4 KiB: magic, version, device UUID, MAC key check, geometry, checksum
//   data.000 ...      up to 1 TiB each, preallocated; block 0 is a label {device UUID, number}
//   live              which images the index names (live_map.h)
//   index/            RocksDB
// The whole directory never exceeds `capacity_bytes`: part of it is kept back for the index. Files
// grow with it and never shrink: a device that was made for more keeps its size.
//
// Open takes an exclusive lock (flock on the superblock and on every data file) for its lifetime: a
// dead process's I/O in flight still holds it, and extents are not reused before it ends.
// Block numbers count through the data files; labels are never handed out (ReservedExtents), and
// runs do not cross files (barrier_blocks).
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tiers/base/extent.h"
#include "tiers/base/image.h"
#include "tiers/base/key.h"
#include "tiers/base/random.h"
#include "tiers/index/chunk_index.h"
#include "tiers/io/device.h"
#include "tiers/io/io_engine.h"

namespace kvkeep {

struct NvmeDeviceOptions {
  std::string dir;
  uint64_t capacity_bytes = 0;  // of the directory, index included; at least 64 MiB
  // Size of one data file, fixed when the device is formatted; ignored afterwards. Smaller only in
  // tests: 1 MiB to 1 TiB, a multiple of 4 KiB, at most 1000 files.
  uint64_t file_bytes = 1ull << 40;
  uint32_t depth = 32;
  // A known device that cannot be opened stops the start instead of degrading it.
  bool required = false;
  // False for a device that is known to exist: then a directory without a superblock is kBroken
  // (its file system is not mounted) and not formatted.
  bool may_format = true;

  absl::Status Validate() const;
};

// Why a device could not be opened, as the daemon reacts differently.
enum class OpenFailure {
  // It is of another version, capacity is above the free space, not a directory, a directory with
  // other things in it: refuse to start.
  kMisconfigured,
  kInUse,   // locked by another daemon, or by I/O of a dead one: joins when it is free
  // Absent, read-only, I/O error, corrupt; or of another store, as when the state directory was
  // lost: start degraded unless required.
  kBroken,
};

class NvmeDevice {
 public:
  struct OpenError {
    OpenFailure failure;
    absl::Status status;  // one line: which path, why, what to do
  };
  struct OpenResult;

  virtual ~NvmeDevice() = default;

  virtual const Uuid& uuid() const = 0;
  virtual const std::string& dir() const = 0;
  virtual BlockCount capacity_blocks() const = 0;
  virtual BlockCount barrier_blocks() const = 0;
  // Returns the blocks that hold labels. The owner of the allocator claims them before anything
  // else.
  virtual ExtentList ReservedExtents() const = 0;
  // Directory bytes: data files and index, now; never above capacity_bytes.
  virtual uint64_t used_directory_bytes() const = 0;
  virtual uint64_t capacity_bytes() const = 0;  // that the files were made for
  // Returns whether the index has outgrown its allowance: then there are no more adds until it
  // shrinks, which a Commit or Sync of the index finds out. Never waits.
  virtual bool index_over_budget() const = 0;

  // Block-addressed: operation.offset is in the device's own space (block number * kBlockBytes)
  // and must lie inside one extent, hence inside one file.
  virtual Device& io() = 0;
  virtual ChunkIndex& index() = 0;
  // Returns the times of its operations; null: not recorded.
  virtual const DeviceTimes* times() const { return nullptr; }
};

// Opens the device, or formats an empty directory (created when its parent exists). A larger
// capacity_bytes than before grows the device. Blocks for about 2 s when another process has it.
// `store_uuid`: devices of one store carry the same one; another is kBroken.
// `mac_key`: its fingerprint is in the superblock; another is kBroken.
// `locked` is called once all locks are ours, before the index is opened: no I/O of a dead process
// is under way from then on.
struct NvmeDevice::OpenResult {
  std::unique_ptr<NvmeDevice> device;  // null on error
  OpenError error;
  bool formatted = false;
};
NvmeDevice::OpenResult OpenNvmeDevice(const NvmeDeviceOptions& options, const Uuid& store_uuid,
                                      const MacKey& mac_key, IoEngine* engine,
                                      RandomSource* random,
                                      const std::function<void()>& locked = nullptr);

// The store's own small state outside any device: UUID and MAC key, made at the first start.
struct StoreIdentity {
  Uuid store_uuid;
  MacKey mac_key;
};
// File `path`, mode 0600, written whole (fsync, then linked to its name). FailedPrecondition when
// its mode or owner lets others read it; DataLoss when damaged.
absl::StatusOr<StoreIdentity> LoadOrCreateStoreIdentity(const std::string& path,
                                                        RandomSource* random);

// Loads the identity that is there. NotFound if there is none.
absl::StatusOr<StoreIdentity> LoadStoreIdentity(const std::string& path);

// Returns the id of this boot of the machine (/proc/sys/kernel/random/boot_id).
absl::StatusOr<Uuid> ReadBootId();

}  // namespace kvkeep
