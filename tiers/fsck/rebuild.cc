// RebuildIndex. The steps, and what a kill between them leaves:
//
//   1 read the marked images whole                nothing
//   2 flush the data files                        nothing
//   3 the new index, in index.new                 index.new, which nobody looks at
//   4 the new live map, in live.new               both
//   5 index.new changes names with index          the new index in use, the old one as index.new
//   6 live.new becomes live                       (a map that says too much until here, of images
//                                                 that are damaged: another rebuild drops them too)
//   7 index.new becomes index.lost                done
#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <tuple>

#include "tiers/base/block_set.h"
#include "tiers/base/check.h"
#include "tiers/base/random.h"
#include "tiers/base/status_macros.h"
#include "tiers/fsck/findings.h"
#include "tiers/fsck/fsck.h"
#include "tiers/fsck/image_reader.h"
#include "tiers/fsck/offline_device.h"
#include "tiers/index/rocksdb_index.h"
#include "tiers/nvme/device_names.h"

namespace kvkeep {
namespace {

using fsck_internal::Findings;
using fsck_internal::FoundImage;
using fsck_internal::ImageFault;
using fsck_internal::InParallel;
using fsck_internal::OfflineDevice;
using fsck_internal::ProgressTeller;
using fsck_internal::ReadBuffer;

constexpr size_t kRecordsABatch = 1000;

class Rebuild {
 public:
  Rebuild(const FsckOptions& options, const OfflineDevice& device, Findings& findings,
          RebuildReport& report)
      : options_(options), device_(device), findings_(findings), report_(report) {}

  absl::Status Run() {
    ReadImages();
    ChooseImages();
    KVKEEP_RETURN_IF_ERROR(device_.SyncDataFiles());
    KVKEEP_RETURN_IF_ERROR(MakeIndex());
    KVKEEP_RETURN_IF_ERROR(MakeLiveMap());
    return PutInPlace();
  }

 private:
  void ReadImages();
  void ReadImage(BlockNumber first, ReadBuffer& buffer);
  // Keeps the newer of two images that exclude each other. Leaves the images oldest first.
  void ChooseImages();
  absl::Status MakeIndex();
  absl::Status MakeLiveMap();
  absl::Status PutInPlace();
  void Drop(const IndexRecord& image, const char* why);

  const FsckOptions& options_;
  const OfflineDevice& device_;
  Findings& findings_;
  RebuildReport& report_;
  Mutex mu_;
  std::vector<IndexRecord> images_ ABSL_GUARDED_BY(mu_);  // by several threads while they are read
};

void Rebuild::ReadImages() {
  if (!device_.live_map().has_value()) return;
  std::vector<BlockNumber> marked;
  const BlockSet& map = device_.live_map()->images;
  for (auto at = map.Next(BlockNumber(0)); at.has_value();
       at = map.Next(BlockNumber(at->value() + 1))) {
    marked.push_back(*at);
  }
  report_.marked_images = marked.size();
  ProgressTeller progress(options_, device_);
  std::atomic<uint64_t> done = 0;
  InParallel(
      marked.size(), options_.threads,
      [&](size_t i, ReadBuffer& buffer) {
        ReadImage(marked[i], buffer);
        ++done;
      },
      [&] { progress.Tell("images", done); });
}

void Rebuild::ReadImage(BlockNumber first, ReadBuffer& buffer) {
  FoundImage image;
  std::optional<ImageFault> fault =
      ReadHeader(device_, options_.identity.mac_key, first, nullptr, buffer, &image);
  const bool header_is_good = !fault.has_value();
  if (header_is_good) fault = ReadPayload(device_, options_.keys, buffer, &image);
  MutexLock lock(&mu_);
  if (!fault.has_value()) {
    images_.push_back(RecordOf(image.header, image.root));
    return;
  }
  ++report_.damaged;
  FsckFinding finding{
      .problem = fault->problem, .what = std::move(fault->what), .to_do = "the chunk is left out"};
  if (header_is_good) finding.chunk = image.header.identity.id;
  device_.Locate(fault->where, &finding);
  findings_.Add(std::move(finding));
}

void Rebuild::Drop(const IndexRecord& image, const char* why) {
  ++report_.dropped;
  FsckFinding finding{.problem = FsckProblem::kOverlap,
                      .notice = true,
                      .chunk = image.id,
                      .what = why,
                      .to_do = "the older one is left out"};
  device_.Locate(image.extents[0].first, &finding);
  findings_.Add(std::move(finding));
}

void Rebuild::ChooseImages() {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(images_.size() + report_.damaged == report_.marked_images);
  // Generations count within an incarnation. Incarnations are ordered by the youngest of their
  // chunks.
  absl::flat_hash_map<Incarnation, uint64_t> youngest;
  for (const IndexRecord& image : images_) {
    uint64_t& at = youngest[image.incarnation];
    at = std::max(at, image.created_unix_us);
  }
  const auto age = [&youngest](const IndexRecord& image) {
    return std::tuple(youngest[image.incarnation], image.incarnation, image.generation,
                      image.extents[0].first);
  };
  std::sort(images_.begin(), images_.end(),
            [&age](const IndexRecord& a, const IndexRecord& b) { return age(a) > age(b); });
  BlockSet taken(device_.space().blocks);
  absl::flat_hash_set<ChunkId, ChunkIdHash> known(0, ChunkIdHash{RealRandom()->NextU64()});
  std::vector<IndexRecord> chosen;
  for (IndexRecord& image : images_) {
    bool is_free = true;
    for (const Extent& extent : image.extents) {
      const std::optional<BlockNumber> next = taken.Next(extent.first);
      is_free &= !next.has_value() || next->value() >= extent.end();
    }
    if (!is_free) {
      Drop(image, "a newer image lies over this one");
      continue;
    }
    if (!known.insert(image.id).second) {
      Drop(image, "there is a newer image of this chunk");
      continue;
    }
    for (const Extent& extent : image.extents) {
      for (uint64_t b = extent.first.value(); b < extent.end(); ++b) taken.Insert(BlockNumber(b));
    }
    chosen.push_back(std::move(image));
  }
  std::reverse(chosen.begin(), chosen.end());
  for (size_t i = 0; i < chosen.size(); ++i) {
    chosen[i].sequence = CommitSequence(i + 1);
    report_.chunk_bytes += chosen[i].shape.payload_bytes;
  }
  report_.chunks = chosen.size();
  KVKEEP_CHECK(chosen.size() + report_.dropped == images_.size());
  images_ = std::move(chosen);
}

absl::Status Rebuild::MakeIndex() {
  MutexLock lock(&mu_);
  const std::string path = device_.path(kNewIndexName);
  std::error_code error;
  std::filesystem::remove_all(path, error);  // of a rebuild that was cut short
  if (error) return ErrnoStatus(error.value(), path, "remove");
  if (mkdirat(device_.dir(), kNewIndexName, 0700) != 0) return ErrnoStatus(errno, path, "mkdir");
  const RocksDbIndexOptions options = {
      .create = true,
      .write_buffer_bytes = device_.geometry().index_write_buffer_bytes(),
      .may_wait = true};
  KVKEEP_ASSIGN_OR_RETURN(const std::unique_ptr<ChunkIndex> index,
                          OpenRocksDbIndex(path, device_.superblock().device, options));
  for (size_t first = 0; first < images_.size(); first += kRecordsABatch) {
    const size_t end = std::min(first + kRecordsABatch, images_.size());
    IndexBatch batch;
    batch.adds.assign(images_.begin() + static_cast<ptrdiff_t>(first),
                      images_.begin() + static_cast<ptrdiff_t>(end));
    KVKEEP_RETURN_IF_ERROR(index->Commit(batch));
  }
  KVKEEP_CHECK(images_.empty() || images_.back().sequence.value() == images_.size());
  // Every byte was read back, and flushed: none is in doubt.
  return index->Sync({.boot_id = options_.boot_id, .sequence = CommitSequence(images_.size())});
}

absl::Status Rebuild::MakeLiveMap() {
  MutexLock lock(&mu_);
  BlockSet images(device_.space().blocks);
  for (const IndexRecord& image : images_) {
    KVKEEP_CHECK(images.Insert(image.extents[0].first));
  }
  return WriteLiveMap(device_.path(kNewLiveMapName), device_.superblock().device, images);
}

absl::Status Rebuild::PutInPlace() {
  const int dir = device_.dir();
  const std::string index = device_.path(kIndexName);
  const auto rename = [&](const char* from, const char* to, unsigned flags) {
    return renameat2(dir, from, dir, to, flags) == 0 ? 0 : errno;
  };
  bool had_one = true;
  int error = rename(kNewIndexName, kIndexName, RENAME_EXCHANGE);
  if (error == ENOENT) {
    had_one = false;
    error = rename(kNewIndexName, kIndexName, RENAME_NOREPLACE);
  }
  if (error != 0) return ErrnoStatus(error, index, "put the new index in its place");
  KVKEEP_RETURN_IF_ERROR(FlushFile(dir, options_.dir));
  error = rename(kNewLiveMapName, kLiveMapName, 0);
  if (error != 0) return ErrnoStatus(error, device_.path(kLiveMapName), "rename");
  if (had_one) {
    report_.old_index = device_.path(kLostIndexName);
    std::error_code removed;
    std::filesystem::remove_all(report_.old_index, removed);  // of an earlier rebuild
    if (removed) return ErrnoStatus(removed.value(), report_.old_index, "remove");
    error = rename(kNewIndexName, kLostIndexName, 0);
    if (error != 0) return ErrnoStatus(error, report_.old_index, "rename");
  }
  return FlushFile(dir, options_.dir);
}

}  // namespace

absl::StatusOr<RebuildReport> RebuildIndex(const FsckOptions& options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  Findings findings(options.max_findings);
  RebuildReport report;
  KVKEEP_ASSIGN_OR_RETURN(const std::unique_ptr<OfflineDevice> device,
                          OfflineDevice::Open(options, &findings));
  if (device == nullptr || !device->files_are_whole()) {
    return absl::DataLossError(
        absl::StrCat(options.dir,
                     ": superblock or data files are not whole, an index would not help; kvkeep "
                     "fsck says what is wrong"));
  }
  // Without the live map the new index would be empty, and so would the new map.
  KVKEEP_RETURN_IF_ERROR(device->live_map_error());
  Rebuild rebuild(options, *device, findings, report);
  KVKEEP_RETURN_IF_ERROR(rebuild.Run());
  findings.MoveTo(&report);
  return report;
}

}  // namespace kvkeep
