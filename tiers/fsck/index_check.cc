#include "tiers/fsck/index_check.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/nvme/device_names.h"

namespace kvkeep::fsck_internal {
namespace {

constexpr size_t kBatchRecords = 16'384;
// Most records in one commit of the store.
constexpr size_t kMaxBatchRecords = 64;

constexpr char kDropped[] = "nothing: the daemon drops the chunk when it is asked for";
constexpr char kRebuild[] = "kvkeep fsck --rebuild-index makes the index anew from the images";
constexpr char kAtStart[] = "nothing: the daemon's next start deals with it";

}  // namespace

IndexCheck::IndexCheck(const FsckOptions& options, const OfflineDevice& device,
                       IndexInspector& index, Findings& findings, FsckReport& report)
    : options_(options),
      device_(device),
      space_(device.space()),
      index_(index),
      findings_(findings),
      report_(report),
      progress_(options, device),
      claimed_(space_.blocks),
      begins_(space_.blocks) {}

absl::Status IndexCheck::Run() {
  KVKEEP_ASSIGN_OR_RETURN(mark_, index_.ReadStableMark());
  power_cut_ = mark_.boot_id != options_.boot_id && !mark_.clean;
  KVKEEP_ASSIGN_OR_RETURN(const auto noted, index_.GetMeta(kDoubtfulName));
  noted_ = DecodeDoubtful(noted);
  for (uint64_t label = 0; label < space_.blocks.value(); label += space_.file_blocks.value()) {
    KVKEEP_CHECK(claimed_.Insert(BlockNumber(label)));
    report_.label_bytes += kBlockBytes;
  }
  const absl::Status scanned = index_.Visit([this](absl::string_view key, absl::string_view value) {
    TakeRecord(key, value);
    if (batch_.size() == kBatchRecords) CheckBatch();
    return true;
  });
  CheckBatch();
  KVKEEP_RETURN_IF_ERROR(scanned);
  KVKEEP_RETURN_IF_ERROR(NameOverlaps());
  if (device_.live_map().has_value()) {
    TellUnmarked();
    FindLost();
  }
  if (!options_.headers_only) FindOrphans();
  CountSpace();
  return absl::OkStatus();
}

void IndexCheck::Add(FsckProblem problem, BlockNumber where, const ChunkId& id, std::string what,
                     std::string to_do, bool notice) {
  FsckFinding finding{.problem = problem,
                      .notice = notice,
                      .chunk = id,
                      .what = std::move(what),
                      .to_do = std::move(to_do)};
  device_.Locate(where, &finding);
  findings_.Add(std::move(finding));
}

void IndexCheck::TakeRecord(absl::string_view key, absl::string_view value) {
  ++report_.records;
  absl::StatusOr<IndexRecord> record = DecodeRecord(key, value);
  if (!record.ok()) {
    ++bad_;
    findings_.Add({.problem = FsckProblem::kRecord,
                   .file = kIndexName,
                   .what = std::string(record.status().message()),
                   .to_do = kRebuild});
    return;
  }
  if (const absl::Status fits = CheckExtents(record->extents, space_); !fits.ok()) {
    ++bad_;
    findings_.Add({.problem = FsckProblem::kExtent,
                   .file = kIndexName,
                   .chunk = record->id,
                   .what = std::string(fits.message()),
                   .to_do = "nothing: the daemon's next start drops the record"});
    return;
  }
  Claim(*record);
  CompareWithLiveMap(*record);
  batch_.push_back(*std::move(record));
}

void IndexCheck::Claim(const IndexRecord& record) {
  std::optional<BlockNumber> taken;
  for (const Extent& extent : record.extents) {
    for (uint64_t block = extent.first.value(); block < extent.end(); ++block) {
      if (claimed_.Insert(BlockNumber(block))) {
        ++used_blocks_;
      } else if (!taken.has_value()) {
        taken = BlockNumber(block);
      }
    }
  }
  begins_.Insert(record.extents[0].first);
  if (!taken.has_value()) return;
  if (overlaps_.size() < options_.max_findings) {
    overlaps_.push_back({*taken, record.id, record.sequence});
  } else {
    findings_.OnlyCount(/*notice=*/power_cut_);
  }
}

bool IndexCheck::MapCovers(BlockNumber block) const {
  const std::vector<uint64_t>& damaged = device_.live_map()->damaged_pages;
  return !std::binary_search(damaged.begin(), damaged.end(), block.value() / kLiveBlocksPerPage);
}

void IndexCheck::CompareWithLiveMap(const IndexRecord& record) {
  const BlockNumber first = record.extents[0].first;
  if (!device_.live_map().has_value() || !MapCovers(first)) return;
  if (device_.live_map()->images.Contains(first)) return;
  ++unmarked_records_;
  if (unmarked_.size() < options_.max_findings) unmarked_.push_back({record.id, first});
}

void IndexCheck::CheckBatch() {
  std::sort(batch_.begin(), batch_.end(), [](const IndexRecord& a, const IndexRecord& b) {
    return a.extents[0].first < b.extents[0].first;
  });
  InParallel(
      batch_.size(), options_.threads,
      [this](size_t i, ReadBuffer& buffer) { CheckImage(batch_[i], buffer); },
      [this] { progress_.Tell("images", good_ + bad_ + stale_); });
  batch_.clear();
}

bool IndexCheck::IsDoubtful(CommitSequence sequence) const {
  return power_cut_ || sequence > mark_.sequence || noted_.contains(sequence);
}

bool IndexCheck::MayBeStale(CommitSequence sequence, const ImageFault& fault) const {
  if (fault.problem == FsckProblem::kUnreadable) return false;
  // Either its data never arrived, also when the drive alone lost its power. Or its removal was
  // lost with the machine's power, and its blocks are another image's now: then its first block has
  // no header of its own (Confirmer::OnRead judges by the header as well).
  return sequence > mark_.sequence || noted_.contains(sequence) ||
         (power_cut_ && fault.is_not_there);
}

void IndexCheck::CheckImage(const IndexRecord& record, ReadBuffer& buffer) {
  FoundImage image;
  std::optional<ImageFault> fault = ReadHeader(device_, options_.identity.mac_key,
                                               record.extents[0].first, &record, buffer, &image);
  if (!fault.has_value() && !options_.headers_only) {
    fault = ReadPayload(device_, options_.keys, buffer, &image);
    if (image.unchecked) ++unchecked_;
  }
  if (!fault.has_value()) {
    ++good_;
    if (!image.header.encryption.has_value()) ++plain_;
    if (IsDoubtful(record.sequence)) ++doubtful_;
    return;
  }
  const bool stale = MayBeStale(record.sequence, *fault);
  ++(stale ? stale_ : bad_);
  if (stale) absl::StrAppend(&fault->what, " (lost with the power)");
  Add(fault->problem, fault->where, record.id, std::move(fault->what),
      stale                                        ? kAtStart
      : fault->problem == FsckProblem::kUnreadable ? "look at the drive"
                                                   : kDropped,
      stale);
}

absl::Status IndexCheck::NameOverlaps() {
  if (overlaps_.empty()) return absl::OkStatus();
  std::sort(overlaps_.begin(), overlaps_.end(),
            [](const Overlap& a, const Overlap& b) { return a.block < b.block; });
  std::vector<bool> named(overlaps_.size());
  const auto look = [&](const IndexRecord& record, const Extent& extent) {
    auto at = std::lower_bound(
        overlaps_.begin(), overlaps_.end(), extent.first,
        [](const Overlap& overlap, BlockNumber first) { return overlap.block < first; });
    for (; at != overlaps_.end() && at->block.value() < extent.end(); ++at) {
      const auto i = static_cast<size_t>(at - overlaps_.begin());
      if (at->id == record.id || named[i]) continue;
      named[i] = true;
      Add(FsckProblem::kOverlap, at->block, at->id,
          absl::StrCat("chunk ", record.id.ToString(), " (", record.sequence.value(),
                       ") has the same block as this one (", at->sequence.value(), ")"),
          power_cut_ ? kAtStart
                     : "nothing: the daemon's next start keeps one of them; or, to keep the newer "
                       "one, kvkeep fsck --rebuild-index",
          power_cut_);
    }
  };
  return index_.Visit([&](absl::string_view key, absl::string_view value) {
    const absl::StatusOr<IndexRecord> record = DecodeRecord(key, value);
    if (!record.ok() || !CheckExtents(record->extents, space_).ok()) return true;
    for (const Extent& extent : record->extents) look(*record, extent);
    return true;
  });
}

// A killed daemon leaves up to a batch of such records, whose bits it had cleared already or not
// set yet. If there are more, the index has fallen back to a state before their removal.
void IndexCheck::TellUnmarked() {
  const bool notice = unmarked_records_ <= kMaxBatchRecords || power_cut_;
  for (const Unmarked& unmarked : unmarked_) {
    Add(FsckProblem::kRemoved, unmarked.first, unmarked.id,
        "the index names a chunk, the live map does not: on its way in or out when the daemon "
        "ended, or removed and back",
        notice ? kAtStart : kRebuild, notice);
  }
  for (uint64_t i = unmarked_.size(); i < unmarked_records_; ++i) findings_.OnlyCount(notice);
}

void IndexCheck::FindLost() {
  const BlockSet& marked = device_.live_map()->images;
  ReadBuffer buffer;
  for (auto at = marked.Next(BlockNumber(0)); at.has_value();
       at = marked.Next(BlockNumber(at->value() + 1))) {
    if (begins_.Contains(*at)) continue;
    FoundImage image;
    if (ReadHeader(device_, options_.identity.mac_key, *at, nullptr, buffer, &image).has_value()) {
      continue;  // nothing there that could be lost
    }
    Add(FsckProblem::kLost, *at, image.header.identity.id,
        "an image that is in use, and the index does not name it",
        power_cut_ ? kAtStart : absl::StrCat(kRebuild, "; else the chunk is forgotten"),
        power_cut_);
    progress_.Tell("images", good_ + bad_ + stale_);
  }
}

bool IndexCheck::ClaimOrphan(BlockNumber block, ConstHeaderPage page) {
  if (!HasImageMagic(page)) return false;
  const absl::StatusOr<ImageHeader> header =
      DecodeHeaderAt(page, options_.identity.mac_key, block, space_);
  if (!header.ok()) return false;
  ++report_.orphaned_images;
  for (const Extent& extent : header->placement.extents) {
    for (uint64_t b = extent.first.value(); b < extent.end(); ++b) {
      orphaned_blocks_ += claimed_.Insert(BlockNumber(b)) ? 1 : 0;
    }
  }
  return true;
}

void IndexCheck::FindOrphans() {
  ReadBuffer buffer;
  const uint64_t end = space_.blocks.value();
  std::optional<BlockNumber> at = claimed_.Next(BlockNumber(0), /*wanted=*/false);
  while (at.has_value()) {
    const uint64_t first = at->value();
    const uint64_t file_end = (first / space_.file_blocks.value() + 1) * space_.file_blocks.value();
    const std::optional<BlockNumber> taken = claimed_.Next(*at);
    const uint64_t run_end = std::min({taken.has_value() ? taken->value() : end, file_end, end,
                                       first + ReadBuffer::kBytes / kBlockBytes});
    KVKEEP_CHECK(first < run_end);
    const std::span<std::byte> bytes = buffer.First((run_end - first) * kBlockBytes);
    uint64_t next = run_end;
    if (const absl::Status read = device_.Read(*at, bytes); !read.ok()) {
      FsckFinding finding{.problem = FsckProblem::kUnreadable,
                          .what = std::string(read.message()),
                          .to_do = "nothing is lost: the space is free; look at the drive"};
      device_.Locate(*at, &finding);
      findings_.Add(std::move(finding));
    } else {
      for (uint64_t block = first; block < run_end; ++block) {
        const std::byte* page = bytes.data() + (block - first) * kBlockBytes;
        if (!ClaimOrphan(BlockNumber(block), ConstHeaderPage(page, kHeaderBytes))) continue;
        next = block;  // what it claims is not looked into
        break;
      }
    }
    progress_.Tell("free space", good_ + bad_ + stale_);
    at = next < end ? claimed_.Next(BlockNumber(next), /*wanted=*/false) : std::nullopt;
  }
}

void IndexCheck::CountSpace() {
  KVKEEP_CHECK(good_ + bad_ + stale_ == report_.records);
  KVKEEP_CHECK(doubtful_ <= good_ && unchecked_ <= report_.records);
  report_.good_chunks = good_;
  report_.bad_chunks = bad_;
  report_.stale_chunks = stale_;
  report_.doubtful_chunks = doubtful_;
  report_.unchecked_chunks = unchecked_;
  report_.plain_chunks = plain_;
  report_.used_bytes = used_blocks_ * kBlockBytes;
  report_.orphaned_bytes = orphaned_blocks_ * kBlockBytes;
  KVKEEP_CHECK(report_.label_bytes + report_.used_bytes + report_.orphaned_bytes ==
               claimed_.Count() * kBlockBytes);
  KVKEEP_CHECK(report_.label_bytes + report_.used_bytes + report_.orphaned_bytes <=
               report_.data_bytes);
  report_.free_bytes =
      report_.data_bytes - report_.label_bytes - report_.used_bytes - report_.orphaned_bytes;
}

}  // namespace kvkeep::fsck_internal
