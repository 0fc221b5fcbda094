// Reports of a check of a device: counts, and a bounded list of findings. Plain values.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tiers/base/key.h"

namespace kvkeep {

enum class FsckProblem {
  kSuperblock,  // damaged: nothing else can be judged
  kDataFile,    // missing, too short, its label damaged or another's
  kLiveMap,     // damaged: a rebuild would miss the images it covers
  kIndex,       // RocksDB cannot be opened or read, or a table file does not match its checksums
  kLog,         // its write-ahead log is damaged: batches from there on are lost
  kRecord,      // a record that does not decode
  kExtent,      // a record that names blocks no image can lie in
  kOverlap,     // two records that name the same block
  kHeader,      // the header page is damaged, or of another chunk or placement
  kPayload,     // a piece or the metadata tail does not match its checksum
  kUnreadable,  // the drive failed to read it
  kLost,        // an image that the live map vouches for, and no record names
  kRemoved,     // a record of an image that the live map knows to be removed
};
// "superblock", "data-file", ...: stable, for scripts.
absl::string_view FsckProblemName(FsckProblem problem);

struct FsckFinding {
  FsckProblem problem = FsckProblem::kSuperblock;
  // True for a fault that a power cut or a kill may leave, and that the daemon's next start mends.
  // It is told, but the device counts as clean.
  bool notice = false;
  std::string file;               // below the device's directory: "data.000", "index"
  std::optional<uint64_t> block;  // of that file, in blocks of 4 KiB
  std::optional<ChunkId> chunk;
  std::string what;
  std::string to_do;

  std::string ToString() const;  // one line
};

struct FsckReport {
  Uuid device;
  // True if everything asked for was checked. False after findings that bar the way: a damaged
  // superblock, an index that cannot be read.
  bool complete = false;

  uint64_t records = 0;
  uint64_t good_chunks = 0;   // as far as was looked: headers, or every byte
  uint64_t bad_chunks = 0;    // the daemon serves none of them: each becomes a miss
  uint64_t stale_chunks = 0;  // lost with the power, within what that may take; not bad ones
  // Good chunks whose bytes are not known to be synced: a durable put writes them anew.
  uint64_t doubtful_chunks = 0;
  uint64_t unchecked_chunks = 0;  // of the good ones: encrypted, payload not checked without a key
  uint64_t plain_chunks = 0;      // of the good ones: nothing there would find planted bytes
  uint64_t orphaned_images = 0;

  // Bytes of the data files; they add up. Orphaned bytes are those of whole images that no record
  // names: free space, not yet used again. Only a full check tells them from free.
  uint64_t data_bytes = 0;
  uint64_t label_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t orphaned_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t read_bytes = 0;

  std::vector<FsckFinding> findings;  // the first of them: FsckOptions::max_findings
  uint64_t problems = 0;              // all that are not notices
  uint64_t notices = 0;

  bool clean() const { return complete && problems == 0; }
};

struct RebuildReport {
  uint64_t marked_images = 0;  // that the live map vouches for
  uint64_t chunks = 0;         // in the new index; every byte of them was checked
  uint64_t chunk_bytes = 0;
  uint64_t damaged = 0;   // marked, but the image has changed since
  uint64_t dropped = 0;   // whole, but a newer one has the same key or some of the same blocks
  std::string old_index;  // where the old index is now; empty when there was none

  std::vector<FsckFinding> findings;
  uint64_t problems = 0;
  uint64_t notices = 0;
};

}  // namespace kvkeep
