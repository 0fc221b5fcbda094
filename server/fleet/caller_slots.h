// CallerSlots: how many calls of one kind each other node has under way, so that one that stalls
// takes no turn of another. Shares may outlive it. Thread-safe.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tiers/base/mutex.h"

namespace kvkeep {

class CallerSlots {
  struct Calls {
    Mutex mu;
    absl::flat_hash_map<std::string, int> by_caller ABSL_GUARDED_BY(mu);
  };

 public:
  // One call of a node, until this is destroyed.
  class Share {
   public:
    Share(Share&&) noexcept = default;
    Share& operator=(Share&&) = delete;
    ~Share() {
      if (calls_ == nullptr) return;
      MutexLock lock(&calls_->mu);
      const auto own = calls_->by_caller.find(caller_);
      if (--own->second == 0) calls_->by_caller.erase(own);
    }

   private:
    friend class CallerSlots;
    Share(std::shared_ptr<Calls> calls, std::string caller)
        : calls_(std::move(calls)), caller_(std::move(caller)) {}
    std::shared_ptr<Calls> calls_;
    std::string caller_;
  };

  explicit CallerSlots(int most) : most_(most) {}

  // Returns none if the node has as many calls under way as it may.
  std::optional<Share> Take(const std::string& caller) {
    MutexLock lock(&calls_->mu);
    int& calls = calls_->by_caller[caller];
    if (calls >= most_) return std::nullopt;
    ++calls;
    return Share(calls_, caller);
  }

 private:
  const int most_;
  const std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();
};

}  // namespace kvkeep
