// The baselines of one invocation: made once, run again in every round beside what they are
// compared with. One thread.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tools/bench/baselines.h"
#include "tools/bench/series.h"

namespace kvkeep::bench {

class BaselineSet {
 public:
  // `mount_dir` of the arena, empty for memfd; `region_bytes` that copies go between, 0: enough to
  // be cold.
  explicit BaselineSet(std::string mount_dir, uint64_t region_bytes = 0)
      : mount_dir_(std::move(mount_dir)), region_bytes_(region_bytes) {}

  // One more round of cold copies of `size` bytes. Answers the series so far, which stays where it
  // is.
  absl::StatusOr<const Series*> Copy(uint64_t size, int threads, double seconds);
  // One more round of ping-pong; `what` names the messages: "get of 1 key".
  absl::StatusOr<const Series*> PingPongOf(const std::string& what, MessageSizes sizes, int depth,
                                           double seconds);

  std::vector<const Series*> all() const;
  uint64_t huge_page_bytes() const { return copy_ == nullptr ? 0 : copy_->huge_page_bytes(); }

 private:
  const std::string mount_dir_;
  const uint64_t region_bytes_;
  std::unique_ptr<ColdCopy> copy_;
  uint64_t copy_region_bytes_ = 0;
  std::map<std::pair<size_t, size_t>, std::unique_ptr<PingPong>> ping_pongs_;
  std::map<std::string, std::unique_ptr<Series>> series_;
};

}  // namespace kvkeep::bench
