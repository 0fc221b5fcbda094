// SegmentFiles: where an arena's segments come from. Two kinds: sealed memfds and files on a mount.
//
// The arena calls MapSegment once for every segment, from several threads at once, then MapMarks
// and Finish; after that only bytes_there and OpenForClient, which are thread-safe, and, on one
// thread, TakeMore. An object destroyed before Finish undoes what it made.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "tiers/base/key.h"
#include "tiers/base/unique_fd.h"
#include "tiers/host/mapping.h"
#include "tiers/host/numa.h"

namespace kvkeep {

// The division of a capacity into segments.
struct ArenaGeometry {
  uint64_t capacity_bytes = 0;
  uint64_t segment_bytes = 0;

  size_t segment_count() const;
  uint64_t bytes_of(size_t segment) const;  // all but the last have segment_bytes
  uint64_t marks_bytes() const;             // one u64 a block
  bool operator==(const ArenaGeometry&) const = default;
};

class SegmentFiles {
 public:
  virtual ~SegmentFiles() = default;

  virtual const ArenaGeometry& geometry() const = 0;
  virtual const Uuid& uuid() const = 0;
  // `placement` is told of the segment before its memory is taken.
  virtual absl::StatusOr<Mapping> MapSegment(size_t segment, NumaPlacement& placement) = 0;
  // Returns at least marks_bytes(); nothing where the backing does not outlive the daemon.
  virtual absl::StatusOr<Mapping> MapMarks() = 0;
  virtual absl::Status Finish() = 0;

  // Returns how many bytes of a segment, from its start, have memory. The rest is a hole and must
  // not be touched. Never falls. REQUIRES: Finish was called.
  virtual uint64_t bytes_there(size_t segment) const { return geometry().bytes_of(segment); }
  // Takes memory for some of the holes, as far as there is any.
  virtual void TakeMore() {}

  // A fresh open file description, close-on-exec.
  virtual absl::StatusOr<int> OpenForClient(size_t segment) = 0;

  // Returns the bytes of the files' pages, of which their lengths are multiples.
  virtual uint64_t page_bytes() const = 0;
  virtual bool survives_restart() const = 0;
  virtual size_t reused_segments() const = 0;
  // Returns the directory where to note memory errors for the next start; not valid: no next start
  // reads them.
  virtual UniqueFd OpenNotesDirectory() const { return UniqueFd(); }
  // Returns how many pages an earlier process could not read and this start took anew.
  virtual uint64_t replaced_pages() const { return 0; }
  // Returns why files of an earlier start were not kept; empty when they were, or when there were
  // none.
  virtual std::string replaced_because() const = 0;
  // "memfd (...)": which backing and page kind.
  virtual std::string describe() const = 0;
};

}  // namespace kvkeep
