// S3Credentials: the keys that requests to a bucket are signed with, renewed before they expire.
//
// Current() never waits: renewing goes on beside it, and the keys there are used until newer ones
// have come, even past their end (this machine's clock may be the one that is wrong). A renewal is
// begun when the source says that it changed, at about 80 % of the keys' life, at once when a
// server called them expired or unknown, and after a failure with growing pauses. One is on its
// way at a time.
//
// Thread-safe. The caller of Tick or Expired asks the source, with no lock held.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <memory>
#include <optional>

#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"
#include "tiers/base/random.h"
#include "tiers/objects/s3_key_source.h"

namespace kvkeep {

// Counters of questions to the source.
struct KeyCounters {
  uint64_t fetched = 0, failed = 0;
  std::optional<UnixSeconds> expires;  // the keys in use, if they do

  bool operator==(const KeyCounters&) const = default;
};

class S3Credentials {
 public:
  // Pauses after failures: doubling, each up to half shorter, so that a fleet does not ask at once.
  static constexpr std::chrono::seconds kFirstPause{1}, kLongestPause{60};
  // Keys with a shorter life are renewed no more often.
  static constexpr std::chrono::seconds kShortestLife{10};
  // Keys that claim a longer life are renewed as if theirs were this.
  static constexpr std::chrono::hours kLongestLife{24 * 365};

  // `clock` and `random` outlive this.
  S3Credentials(std::unique_ptr<S3KeySource> source, Clock* clock, RandomSource* random);
  // An answer that comes later is dropped.
  ~S3Credentials();

  // Null until the source has answered for the first time.
  SharedS3Keys Current() const;
  // Waits at most `within` until there are keys, or the first answer was an error. OK: there are
  // keys.
  absl::Status AwaitFirst(std::chrono::milliseconds within) const;
  // Begins a renewal when one is due. Called about once a second, by a thread that serves no
  // requests: the source may read a file.
  void Tick();
  // Begins a renewal, once for these keys, because a server said that they have expired. Returns
  // false when nothing newer is to come: an earlier renewal for them brought the same keys, or
  // failed.
  bool Expired(const SharedS3Keys& keys);

  // Returns the status of the last renewal; Unavailable before the first. Never holds a secret.
  absl::Status status() const;
  // When the current keys end, if they do.
  std::optional<UnixSeconds> expires() const;
  KeyCounters counters() const;

 private:
  struct State {
    mutable Mutex mu;
    CondVar answered;
    SharedS3Keys keys ABSL_GUARDED_BY(mu);
    absl::Status status ABSL_GUARDED_BY(mu) =
        absl::UnavailableError("the keys have not come yet");
    KeyCounters counters ABSL_GUARDED_BY(mu);  // but for `expires`
    bool asking ABSL_GUARDED_BY(mu) = false;
    std::optional<MonotonicTime> due ABSL_GUARDED_BY(mu);  // none: not by time
    int failures ABSL_GUARDED_BY(mu) = 0;
    SharedS3Keys expired ABSL_GUARDED_BY(mu);  // renewed because a server said so, once
  };
  void Ask();
  static void Take(State& state, Clock& clock, RandomSource& random, absl::StatusOr<S3Keys> keys);

  const std::unique_ptr<S3KeySource> source_;
  Clock& clock_;
  RandomSource& random_;
  const std::shared_ptr<State> state_;
};

}  // namespace kvkeep
