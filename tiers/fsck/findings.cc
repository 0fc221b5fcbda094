#include "tiers/fsck/findings.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <tuple>

#include "tiers/base/check.h"

namespace kvkeep {

absl::string_view FsckProblemName(FsckProblem problem) {
  switch (problem) {
    case FsckProblem::kSuperblock:
      return "superblock";
    case FsckProblem::kDataFile:
      return "data-file";
    case FsckProblem::kLiveMap:
      return "live-map";
    case FsckProblem::kIndex:
      return "index";
    case FsckProblem::kLog:
      return "log";
    case FsckProblem::kRecord:
      return "record";
    case FsckProblem::kExtent:
      return "extent";
    case FsckProblem::kOverlap:
      return "overlap";
    case FsckProblem::kHeader:
      return "header";
    case FsckProblem::kPayload:
      return "payload";
    case FsckProblem::kUnreadable:
      return "unreadable";
    case FsckProblem::kLost:
      return "lost";
    case FsckProblem::kRemoved:
      return "removed";
  }
  KVKEEP_CHECK(false);
}

std::string FsckFinding::ToString() const {
  std::string text = absl::StrCat(notice ? "notice: " : "", FsckProblemName(problem), ": ", file);
  if (block.has_value()) absl::StrAppend(&text, " block ", *block);
  if (chunk.has_value()) absl::StrAppend(&text, ", chunk ", chunk->ToString());
  return absl::StrCat(text, ": ", what, "; ", to_do);
}

namespace fsck_internal {

void Findings::Add(FsckFinding finding) {
  MutexLock lock(&mu_);
  ++(finding.notice ? notices_ : problems_);
  if (listed_.size() < max_listed_) {
    listed_.push_back(std::move(finding));
    return;
  }
  if (finding.notice) return;
  // A problem is worth more than a notice.
  const auto notice = std::find_if(listed_.begin(), listed_.end(),
                                   [](const FsckFinding& listed) { return listed.notice; });
  if (notice != listed_.end()) *notice = std::move(finding);
}

void Findings::OnlyCount(bool notice) {
  MutexLock lock(&mu_);
  ++(notice ? notices_ : problems_);
}

uint64_t Findings::problems() const {
  MutexLock lock(&mu_);
  return problems_;
}

void Findings::Sort() {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(listed_.size() <= max_listed_ && listed_.size() <= problems_ + notices_);
  std::stable_sort(listed_.begin(), listed_.end(), [](const FsckFinding& a, const FsckFinding& b) {
    return std::tie(a.notice, a.file, a.block) < std::tie(b.notice, b.file, b.block);
  });
}

}  // namespace fsck_internal
}  // namespace kvkeep
