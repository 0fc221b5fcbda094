#include "tools/bench/baselines.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/status_macros.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kMinCopiesPerRegion = 2;

MessageSizes MessagesOf(Verb verb, uint32_t keys) {
  if (verb == Verb::kPut) return PutMessages(keys);
  return verb == Verb::kLookup ? LookupMessages(keys) : GetMessages(keys);
}

}  // namespace

absl::StatusOr<const Series*> BaselineSet::Copy(uint64_t size, int threads, double seconds) {
  const uint64_t wanted =
      std::max(kMinCopiesPerRegion * size, region_bytes_ == 0 ? ColdBytes() : region_bytes_);
  if (copy_ == nullptr || copy_region_bytes_ < wanted) {
    copy_.reset();
    copy_region_bytes_ = wanted;
    KVKEEP_ASSIGN_OR_RETURN(copy_, ColdCopy::Create(wanted, mount_dir_));
  }
  const std::string name = absl::StrCat("memcpy ", tools::FormatBytes(size), ", ", threads,
                                        threads == 1 ? " thread" : " threads");
  Series& series = series_[name];
  series.name = name;
  series.about = {{"size", size},
                  {"threads", threads},
                  {"region_bytes", copy_region_bytes_},
                  {"huge_page_bytes", copy_->huge_page_bytes()}};
  series.rounds.push_back(copy_->Run(size, threads, seconds));
  return &series;
}

absl::StatusOr<const Series*> BaselineSet::PingPongOf(Verb verb, uint32_t keys, uint32_t depth,
                                                      double seconds) {
  const MessageSizes sizes = MessagesOf(verb, keys);
  std::unique_ptr<PingPong>& partner = ping_pongs_[{sizes.request_bytes, sizes.reply_bytes}];
  if (partner == nullptr) {
    KVKEEP_ASSIGN_OR_RETURN(partner, PingPong::Start(sizes));
  }
  std::string name = absl::StrCat("ping-pong, ", VerbName(verb), " of ", keys,
                                  keys == 1 ? " key" : " keys");
  if (depth > 1) absl::StrAppend(&name, ", depth ", depth);
  Series& series = series_[name];
  series.name = name;
  series.about = {
      {"request_bytes", sizes.request_bytes}, {"reply_bytes", sizes.reply_bytes}, {"depth", depth}};
  KVKEEP_ASSIGN_OR_RETURN(series.rounds.emplace_back(),
                          partner->Run(static_cast<int>(depth), seconds));
  return &series;
}

void BaselineSet::AddTo(Report* report) const {
  for (const auto& [name, series] : series_) report->baselines.push_back(series);
  report->baseline_huge_page_bytes = copy_ == nullptr ? 0 : copy_->huge_page_bytes();
}

}  // namespace kvkeep::bench
