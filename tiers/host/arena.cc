#include "tiers/host/arena.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <atomic>
#include <set>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/memory_errors.h"
#include "tiers/base/mutex.h"
#include "tiers/base/page_bytes.h"
#include "tiers/base/random.h"
#include "tiers/base/run_on_threads.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tiers/host/arena_files.h"
#include "tiers/host/mapping.h"
#include "tiers/host/memfd_files.h"
#include "tiers/host/mount_files.h"
#include "tiers/host/prefault.h"
#include "tiers/host/segment_files.h"

namespace kvkeep {
namespace {

constexpr uint64_t kMinCapacityBytes = 1 * kMiB;
constexpr uint64_t kSegmentUnit = 2 * kMiB;
constexpr uint64_t kMaxSegmentBytes = 1 * kGiB;
constexpr uint64_t kMaxSegments = 16384;

class SegmentedArena final : public Arena {
 public:
  SegmentedArena(std::unique_ptr<SegmentFiles> files,
                 std::unique_ptr<const NumaPlacement> placement, std::vector<Mapping> segments,
                 Mapping marks, std::string reason, Executor* prefault_executor)
      : files_(std::move(files)),
        placement_(std::move(placement)),
        segments_(std::move(segments)),
        marks_(std::move(marks)),
        reason_(std::move(reason)),
        errors_(Watched(), files_->OpenNotesDirectory()) {
    KVKEEP_CHECK(segments_.size() == files_->geometry().segment_count());
    for (size_t i = 0; i < segments_.size(); ++i) {
      KVKEEP_CHECK(segments_[i].memory().size() == files_->geometry().bytes_of(i));
    }
    if (prefault_executor == nullptr) return;
    std::vector<std::span<std::byte>> memory;
    for (size_t i = 0; i < segments_.size(); ++i) {
      memory.push_back(segments_[i].memory().first(files_->bytes_there(i)));
    }
    prefaulter_ = std::make_unique<Prefaulter>(std::move(memory), prefault_executor);
  }

  uint64_t capacity_bytes() const override { return files_->geometry().capacity_bytes; }
  BlockCount capacity_blocks() const override { return BlockCount(capacity_bytes() / kBlockBytes); }
  BlockCount segment_blocks() const override {
    return BlockCount(files_->geometry().segment_bytes / kBlockBytes);
  }
  const Uuid& uuid() const override { return files_->uuid(); }

  std::span<std::byte> Memory(const Extent& extent) override;
  std::span<uint64_t> live_marks() override;
  bool HasMemory(BlockNumber block) const override {
    const uint64_t per_segment = segment_blocks().value();
    return block.value() % per_segment * kBlockBytes <
           files_->bytes_there(block.value() / per_segment);
  }
  std::vector<Extent> ToCome() const override;
  std::vector<Extent> TakeMore() override;
  bool SegmentIsWhole(size_t segment) const override {
    return files_->bytes_there(segment) == files_->geometry().bytes_of(segment);
  }
  size_t segment_count() const override { return segments_.size(); }
  std::span<std::byte> SegmentMemory(size_t segment) override {
    KVKEEP_CHECK(segment < segments_.size());
    return segments_[segment].memory();
  }
  std::optional<int> NodeOf(BlockNumber block) const override {
    return placement_->NodeOf(block.value() / segment_blocks().value());
  }
  using Arena::NodeOf;
  absl::StatusOr<int> OpenForClient(size_t segment) override {
    if (segment >= segments_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("segment ", segment, ": the arena has ", segments_.size()));
    }
    return files_->OpenForClient(segment);
  }

  std::vector<Extent> TakeBroken() override;
  Stats stats() const override;
  std::string describe() const override;

 private:
  std::vector<MemoryWatch::Range> Watched() const;
  // Bytes [begin, end) of a segment, as blocks of the arena.
  Extent RunOf(size_t segment, uint64_t begin, uint64_t end) const {
    KVKEEP_CHECK(begin < end && end <= files_->geometry().bytes_of(segment));
    KVKEEP_CHECK(begin % kBlockBytes == 0 && end % kBlockBytes == 0);
    return {BlockNumber(segment * segment_blocks().value() + begin / kBlockBytes),
            BlockCount((end - begin) / kBlockBytes)};
  }

  // Constant after construction; files_ does its own synchronization.
  const std::unique_ptr<SegmentFiles> files_;
  const std::unique_ptr<const NumaPlacement> placement_;
  const std::vector<Mapping> segments_;
  const Mapping marks_;  // may be empty
  const std::string reason_;
  MemoryWatch errors_;
  std::unique_ptr<Prefaulter> prefaulter_;  // last: stops before the memory goes
};

std::vector<MemoryWatch::Range> SegmentedArena::Watched() const {
  std::vector<MemoryWatch::Range> ranges;
  for (const Mapping& segment : segments_) ranges.push_back({segment.memory(), ranges.size()});
  if (!marks_.memory().empty()) ranges.push_back({marks_.memory(), kMarksFileNumber});
  return ranges;
}

std::span<std::byte> SegmentedArena::Memory(const Extent& extent) {
  const uint64_t per_segment = segment_blocks().value();
  const uint64_t first = extent.first.value();
  const uint64_t count = extent.count.value();
  const uint64_t capacity = capacity_blocks().value();
  // Written so that no sum can overflow.
  KVKEEP_CHECK(count > 0 && first < capacity && count <= capacity - first);
  KVKEEP_CHECK(count <= per_segment - first % per_segment);
  KVKEEP_CHECK((first % per_segment + count) * kBlockBytes <=
               files_->bytes_there(first / per_segment));
  return segments_[first / per_segment].memory().subspan(first % per_segment * kBlockBytes,
                                                         count * kBlockBytes);
}

std::vector<Extent> SegmentedArena::ToCome() const {
  std::vector<Extent> runs;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const uint64_t end = files_->geometry().bytes_of(i);
    const uint64_t there = files_->bytes_there(i);
    if (there < end) runs.push_back(RunOf(i, there, end));
  }
  return runs;
}

std::vector<Extent> SegmentedArena::TakeMore() {
  std::vector<uint64_t> before;
  for (size_t i = 0; i < segments_.size(); ++i) before.push_back(files_->bytes_there(i));
  files_->TakeMore();
  std::vector<Extent> came;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const uint64_t there = files_->bytes_there(i);
    if (there == before[i]) continue;
    KVKEEP_CHECK(there > before[i]);
    came.push_back(RunOf(i, before[i], there));
    if (prefaulter_ == nullptr) continue;
    prefaulter_->Add(segments_[i].memory().subspan(before[i], there - before[i]));
  }
  return came;
}

std::span<uint64_t> SegmentedArena::live_marks() {
  if (marks_.memory().empty()) return {};
  KVKEEP_CHECK(marks_.memory().size() >= files_->geometry().marks_bytes());
  return {reinterpret_cast<uint64_t*>(marks_.memory().data()), capacity_blocks().value()};
}

std::vector<Extent> SegmentedArena::TakeBroken() {
  std::set<std::pair<uint64_t, uint64_t>> pages;  // segment and offset
  for (const MemoryErrorNote& note : errors_.TakeNew()) {
    if (note.file >= segments_.size()) continue;  // of the marks
    KVKEEP_CHECK(note.offset < files_->geometry().bytes_of(note.file));
    pages.emplace(note.file, note.offset / files_->page_bytes() * files_->page_bytes());
  }
  std::vector<Extent> runs;
  for (const auto& [segment, offset] : pages) {
    runs.push_back(RunOf(segment, offset, offset + files_->page_bytes()));
  }
  return runs;
}

Arena::Stats SegmentedArena::stats() const {
  Stats stats;
  stats.capacity_bytes = capacity_bytes();
  stats.segments = segments_.size();
  for (const Extent& run : ToCome()) stats.to_come_bytes += run.bytes();
  stats.survives_restart = files_->survives_restart();
  stats.reused_segments = files_->reused_segments();
  stats.marks_bytes = marks_.memory().size();
  stats.numa_refused_bytes = placement_->refused_bytes();
  stats.memory_errors = errors_.errors() + files_->replaced_pages();
  if (prefaulter_ != nullptr) {
    const Prefaulter::Stats prefault = prefaulter_->stats();
    stats.prefaulted_bytes = prefault.done_bytes;
    stats.prefault_touched_bytes = prefault.touched_bytes;
    stats.prefault_failed_bytes = prefault.failed_bytes;
    stats.huge_page_bytes = prefault.huge_page_bytes;
  }
  return stats;
}

std::string SegmentedArena::describe() const {
  const Stats now = stats();
  std::string line =
      absl::StrFormat("arena: %s, chosen because %s; %d MiB in %d segments", files_->describe(),
                      reason_, now.capacity_bytes / kMiB, now.segments);
  if (now.to_come_bytes > 0) {
    absl::StrAppend(&line, ", ", now.to_come_bytes / kMiB,
                    " MiB of it to come: their memory is not free yet");
  }
  if (now.reused_segments > 0) absl::StrAppend(&line, ", files of an earlier start reused");
  if (const uint64_t pages = files_->replaced_pages(); pages > 0) {
    absl::StrAppend(&line, ", ", pages, " of their pages taken anew after memory errors");
  }
  if (const std::string why = files_->replaced_because(); !why.empty()) {
    absl::StrAppend(&line, ", files of an earlier start replaced (", why, ")");
  }
  if (now.huge_page_bytes > 0) {
    absl::StrAppend(&line, ", ", now.huge_page_bytes / kMiB, " MiB of it on huge pages");
  }
  std::vector<std::byte*> pages;
  for (const Mapping& segment : segments_) pages.push_back(segment.memory().data());
  if (const std::string numa = placement_->describe(pages); !numa.empty()) {
    absl::StrAppend(&line, "; ", numa);
  }
  absl::StrAppend(&line, now.survives_restart ? "; the memory outlives the daemon"
                                              : "; G2 starts cold after every restart");
  return line;
}

struct Chosen {
  std::unique_ptr<SegmentFiles> files;
  std::string reason;
};

absl::StatusOr<Chosen> OpenMount(const ArenaOptions& options, MountDirs dirs, std::string reason) {
  const uint64_t page = dirs.page_bytes;
  ArenaGeometry geometry{options.capacity_bytes / page * page, options.segment_bytes};
  const ReuseOptions reuse{.owners = options.owners,
                           .fresh = options.fresh,
                           .replaced_because = options.replaced_because};
  if (geometry.capacity_bytes == 0 || geometry.segment_bytes % page != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "mount_dir %s has pages of %d KiB: capacity_bytes %d must be at least one, "
        "segment_bytes %d a multiple of it",
        options.mount_dir, page / kKiB, options.capacity_bytes, options.segment_bytes));
  }
  KVKEEP_ASSIGN_OR_RETURN(auto files,
                          CreateMountFiles(geometry, std::move(dirs), reuse, RealRandom()));
  return Chosen{std::move(files), std::move(reason)};
}

absl::StatusOr<Chosen> OpenMemfd(const ArenaOptions& options, std::string reason) {
  const ArenaGeometry geometry{options.capacity_bytes / PageBytes() * PageBytes(),
                               options.segment_bytes};
  KVKEEP_ASSIGN_OR_RETURN(auto files, CreateMemfdFiles(geometry, RealRandom()));
  return Chosen{std::move(files), std::move(reason)};
}

absl::StatusOr<Chosen> OpenBacking(const ArenaOptions& options) {
  if (options.backing == ArenaBacking::kMemfd) return OpenMemfd(options, "memfd was asked for");
  absl::StatusOr<MountDirs> dirs = OpenMountDirs(options.mount_dir, options.readonly_dir);
  if (dirs.ok()) {
    return OpenMount(options, *std::move(dirs),
                     options.backing == ArenaBacking::kMount ? "the mount was asked for"
                                                             : "both mounts are there");
  }
  if (options.backing == ArenaBacking::kMount) return dirs.status();
  return OpenMemfd(options,
                   absl::StrCat("there is no usable mount (", dirs.status().message(), ")"));
}

// Maps all segments. An error: of one of them; then others may not have been tried.
absl::StatusOr<std::vector<Mapping>> MapSegments(const ArenaOptions& options, SegmentFiles& files,
                                                 NumaPlacement& placement) {
  std::vector<Mapping> segments(files.geometry().segment_count());
  std::atomic<size_t> next = 0;
  Mutex mu;
  absl::Status failed;
  const int threads = std::min<int>(options.threads, static_cast<int>(segments.size()));
  RunOnThreads("kvkeep-arena", threads, [&] {
    for (size_t i = next++; i < segments.size(); i = next++) {
      absl::StatusOr<Mapping> segment = files.MapSegment(i, placement);
      if (!segment.ok()) {
        MutexLock lock(&mu);
        failed.Update(segment.status());
        next = segments.size();
        return;
      }
      segments[i] = *std::move(segment);
      if (options.taken_bytes != nullptr) *options.taken_bytes += files.geometry().bytes_of(i);
    }
  });
  if (!failed.ok()) return failed;
  return segments;
}

}  // namespace

absl::Status ArenaOptions::Validate() const {
  if (capacity_bytes < kMinCapacityBytes) {
    return absl::InvalidArgumentError(absl::StrFormat("capacity_bytes %d is below the least, %d",
                                                      capacity_bytes, kMinCapacityBytes));
  }
  if (segment_bytes == 0 || segment_bytes % kSegmentUnit != 0 || segment_bytes > kMaxSegmentBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("segment_bytes %d must be a multiple of %d, at most %d", segment_bytes,
                        kSegmentUnit, kMaxSegmentBytes));
  }
  if ((capacity_bytes - 1) / segment_bytes >= kMaxSegments) {
    return absl::InvalidArgumentError(
        absl::StrFormat("capacity_bytes %d makes more than %d segments of segment_bytes %d",
                        capacity_bytes, kMaxSegments, segment_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Arena>> CreateArena(const ArenaOptions& options,
                                                   Executor* prefault_executor) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  KVKEEP_ASSIGN_OR_RETURN(Chosen chosen, OpenBacking(options));
  auto placement = std::make_unique<NumaPlacement>(
      options.numa == nullptr ? &RealNuma() : options.numa, options.numa_choice);
  KVKEEP_ASSIGN_OR_RETURN(std::vector<Mapping> segments,
                          MapSegments(options, *chosen.files, *placement));
  KVKEEP_ASSIGN_OR_RETURN(Mapping marks, chosen.files->MapMarks());
  KVKEEP_RETURN_IF_ERROR(chosen.files->Finish());
  return std::make_unique<SegmentedArena>(
      std::move(chosen.files), std::move(placement), std::move(segments), std::move(marks),
      std::move(chosen.reason), options.prefault ? prefault_executor : nullptr);
}

}  // namespace kvkeep
