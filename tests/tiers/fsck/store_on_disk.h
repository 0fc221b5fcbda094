// StoreOnDisk: the real store on a real device directory, over many starts, for tests of the disk's
// contents. Chunks are numbers; size, payload and metadata follow from the number.
//
// One thread; everything runs inside its calls. Stop leaves what a kill leaves.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/manual_executor.h"
#include "tests/fakes/memory_arena.h"
#include "tests/fakes/posix_io_engine.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/seeded_random.h"
#include "tests/sim/payload.h"
#include "tiers/fsck/fsck.h"
#include "tiers/store/store.h"

namespace kvkeep {

class StoreOnDisk {
 public:
  StoreOnDisk();
  ~StoreOnDisk();

  // Returns false if the device does not open: `error` says why. REQUIRES: not running.
  bool Start();
  void Stop();
  NvmeDevice& device() { return *device_; }

  // Puts it; written back and synced on return.
  void Put(uint64_t name, uint32_t payload_bytes, uint32_t tail_bytes = 0);
  void Delete(uint64_t name);
  void Clear();
  // Returns the number of records that the store has dropped since Start, as left behind by a power
  // cut.
  uint64_t stale_records() const { return store_->snapshot().counters.stale_records; }
  // Returns "hit", "miss", "wrong" (other bytes than were put), else the error.
  std::string Get(uint64_t name);
  ChunkId Id(uint64_t name) const { return {ns, MakeKey(name), PartId(0)}; }

  // Checks a device that is not in use.
  FsckReport Check(bool headers_only = false);
  RebuildReport Rebuild();
  FsckOptions fsck_options() const;
  // Returns the records as the index has them. REQUIRES: not running.
  std::map<ChunkId, IndexRecord> Records();
  IndexRecord Record(uint64_t name) { return Records().at(Id(name)); }
  std::string File(const std::string& name) const { return options.dir + "/" + name; }
  // Commits a batch to the index as it is, behind the store's back. REQUIRES: not running.
  void CommitRecords(const IndexBatch& batch);
  // Writes a whole image, and no record of it.
  void WriteImage(const ImageHeader& header, const std::vector<std::byte>& payload);
  // Makes a header for a chunk of this payload, placed there.
  ImageHeader MakeHeader(uint64_t name, const std::vector<std::byte>& payload,
                         const ExtentList& extents, uint64_t generation) const;
  // Returns the bytes of the data files from a block on.
  std::vector<std::byte> ReadBlocks(BlockNumber first, size_t bytes) const;
  void WriteBlocks(BlockNumber first, std::span<const std::byte> bytes) const;
  void FlipBit(const std::string& file, uint64_t byte, int bit = 0) const;
  void FlipInBlock(BlockNumber block, uint64_t byte_in_block) const;
  // Returns every file: path below the directory to its bytes and times.
  std::map<std::string, std::string> Contents() const;

  ScratchDir scratch;
  NvmeDeviceOptions options{
      .dir = scratch / "device", .capacity_bytes = 64 * kMiB, .file_bytes = 10 * kMiB};
  StoreIdentity identity;
  std::shared_ptr<KeyRing> keys;  // null: no encryption
  Uuid boot_id = *Uuid::FromBytes("boot");
  NamespaceDigest ns;
  absl::Status error;
  bool device_opened = false;  // if Start failed: then the store was the cause
  std::map<uint64_t, std::pair<uint32_t, uint32_t>> sizes;  // all that were ever put

 private:
  void RunAll() { executor_.RunAll(); }
  void Settle();

  ManualExecutor executor_;
  ManualClock clock_;
  PosixIoEngine engine_{&executor_};
  SeededRandom random_{7};
  std::unique_ptr<NvmeDevice> device_;
  std::unique_ptr<MemoryArena> arena_;
  std::unique_ptr<Store> store_;
  SessionToken session_;
};

// Counts copies of one of the kinds of problems in a report, notices apart.
size_t CountOf(const std::vector<FsckFinding>& findings, FsckProblem problem, bool notice = false);
// Returns all findings, a line each; for INFO.
std::string Text(const std::vector<FsckFinding>& findings);

}  // namespace kvkeep
