// The ChunkIndex of a device on local NVMe: one RocksDB in one directory.
//
// In the default column family four kinds of key, told apart by their first byte (README.md has
// the layout): identity, stable mark, named values, records. Recency is in a family of its own.
// Both are flushed together: so the write-ahead log lives exactly as long as the write buffers it
// covers, and is bounded by them; and there is one order of writes for all kinds.
//
// Thread-safe, and every call may block on the disk. Writes do not wait for compaction, unless they
// may: they are refused (Unavailable). Sync waits. An index waits for its own disk
// only: its threads and its memory are its own (rocksdb_env.h).
//
// Errors: Unavailable (stall, or another process has it open), ResourceExhausted (disk full),
// DataLoss (corrupt, or the drive failed), FailedPrecondition (of another device or version),
// InvalidArgument (a named value over its limit). After a write failed for any reason but
// Unavailable RocksDB refuses further ones until the index is opened anew.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tiers/base/clock.h"
#include "tiers/base/units.h"
#include "tiers/index/chunk_index.h"

namespace rocksdb {
class FileSystem;
}

namespace kvkeep {

inline constexpr uint64_t kMaxMetaBytes = 64 * kMiB;  // of one named value
inline constexpr size_t kMaxMetaNameBytes = 1024;     // of its name

struct RocksDbIndexOptions {
  // Makes a new index. False: a directory without one is DataLoss, never an empty index.
  bool create = false;
  // Two buffers hold records that are not in a table file yet, two more recency entries; the
  // write-ahead log stays below three buffers.
  uint64_t write_buffer_bytes = 8 * kMiB;  // 64 KiB to 1 GiB
  int max_open_files = 64;                 // 16 to 65536
  // Writes wait while the database is stalled. For callers that have nothing else to do.
  bool may_wait = false;
  // For disk_bytes, which counts the files anew when a second has passed or a quarter of a write
  // buffer was written. Outlives the index.
  const Clock* clock = RealClock();
  // For tests. Null: the machine's own.
  std::shared_ptr<rocksdb::FileSystem> file_system = nullptr;

  absl::Status Validate() const;
};

// `device` is stored at creation; an index of another one is refused (FailedPrecondition), so that
// a directory that was copied or swapped is never taken for this device's own.
absl::StatusOr<std::unique_ptr<ChunkIndex>> OpenRocksDbIndex(const std::string& dir,
                                                             const Uuid& device,
                                                             const RocksDbIndexOptions& options);

// Reads an index without changing a byte in its directory. For `kvkeep fsck`. The caller keeps
// others away from it (the device's lock).
class IndexInspector {
 public:
  virtual ~IndexInspector() = default;
  // DataLoss when the write-ahead log is damaged: neither this nor the daemon sees the entries from
  // there on. A log that merely ends in the middle of an entry, as after a kill or a power cut, is
  // sound.
  virtual const absl::Status& log_status() const = 0;
  // Reads every table file and checks its checksums.
  virtual absl::Status VerifyTables() = 0;
  virtual absl::StatusOr<StableMark> ReadStableMark() = 0;
  virtual absl::StatusOr<std::optional<std::string>> GetMeta(absl::string_view name) = 0;
  // Visits every record as stored, for DecodeRecord. Stops when `visit` returns false.
  virtual absl::Status Visit(
      absl::FunctionRef<bool(absl::string_view key, absl::string_view value)> visit) = 0;
};
absl::StatusOr<std::unique_ptr<IndexInspector>> InspectRocksDbIndex(const std::string& dir,
                                                                    const Uuid& device);

// Returns whether one more database whose write failed may be left in this process's memory, with
// others still to be opened. If not, the device of such a database is better kept as it is.
bool OneMoreIndexMayFail();

}  // namespace kvkeep
