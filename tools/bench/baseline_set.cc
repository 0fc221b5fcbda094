#include "tools/bench/baseline_set.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/status_macros.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kMinCopiesPerRegion = 2;

Series* SeriesNamed(std::map<std::string, std::unique_ptr<Series>>& all, const std::string& name) {
  std::unique_ptr<Series>& series = all[name];
  if (series == nullptr) series = std::make_unique<Series>(Series{.name = name});
  return series.get();
}

}  // namespace

absl::StatusOr<const Series*> BaselineSet::Copy(uint64_t size, int threads, double seconds) {
  const uint64_t wanted =
      std::max(kMinCopiesPerRegion * size, region_bytes_ == 0 ? ColdBytes() : region_bytes_);
  if (copy_ == nullptr || copy_region_bytes_ < wanted) {
    copy_.reset();
    copy_region_bytes_ = wanted;
    KVKEEP_ASSIGN_OR_RETURN(copy_, ColdCopy::Create({.source_bytes = copy_region_bytes_,
                                                     .target_bytes = copy_region_bytes_,
                                                     .mount_dir = mount_dir_}));
  }
  Series* series =
      SeriesNamed(series_, absl::StrCat("memcpy ", tools::FormatBytes(size), ", ", threads,
                                        threads == 1 ? " thread" : " threads"));
  series->about = {{"size", size},
                   {"threads", threads},
                   {"region_bytes", copy_region_bytes_},
                   {"huge_page_bytes", copy_->huge_page_bytes()}};
  series->rounds.push_back(copy_->Run(size, threads, seconds));
  return series;
}

absl::StatusOr<const Series*> BaselineSet::PingPongOf(const std::string& what, MessageSizes sizes,
                                                      int depth, double seconds) {
  std::unique_ptr<PingPong>& partner = ping_pongs_[{sizes.request_bytes, sizes.reply_bytes}];
  if (partner == nullptr) {
    KVKEEP_ASSIGN_OR_RETURN(partner, PingPong::Start(sizes));
  }
  std::string name = absl::StrCat("ping-pong, ", what);
  if (depth > 1) absl::StrAppend(&name, ", depth ", depth);
  Series* series = SeriesNamed(series_, name);
  series->about = {
      {"request_bytes", sizes.request_bytes}, {"reply_bytes", sizes.reply_bytes}, {"depth", depth}};
  KVKEEP_ASSIGN_OR_RETURN(Measured measured, partner->Run(depth, seconds));
  series->rounds.push_back(std::move(measured));
  return series;
}

std::vector<const Series*> BaselineSet::all() const {
  std::vector<const Series*> all;
  for (const auto& [name, series] : series_) all.push_back(series.get());
  return all;
}

}  // namespace kvkeep::bench
