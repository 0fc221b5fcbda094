#include "tiers/remote/image_sweep.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/mutex.h"
#include "tiers/base/status_macros.h"
#include "tiers/remote/object_name.h"

namespace kvkeep {
namespace {

// Deletions under way, and what became of them. Shared with their callbacks.
class Deletions {
 public:
  explicit Deletions(const ImageSweepOptions& options) : options_(options) {}

  void Begin() {
    MutexLock lock(&mu_);
    while (under_way_ >= options_.at_once) changed_.Wait(&mu_);
    ++under_way_;
  }
  void End(uint64_t bytes, const ObjectAnswer& answer) {
    MutexLock lock(&mu_);
    KVKEEP_CHECK(under_way_ > 0);
    --under_way_;
    if (answer.ok() || answer.outcome == ObjectOutcome::kAbsent) {
      ++deleted_;
      deleted_bytes_ += bytes;
      failures_in_row_ = 0;
    } else {
      ++failed_;
      ++failures_in_row_;
      last_error_ = std::string(ToStatus(answer.outcome, "delete", answer.error).message());
    }
    changed_.NotifyAll();
  }
  // Waits for `time`, or until too many deletions failed.
  void Pause(std::chrono::nanoseconds time) {
    MutexLock lock(&mu_);
    if (time.count() > 0 && failures_in_row_ < options_.most_failures) changed_.WaitFor(&mu_, time);
  }
  void AwaitAll() {
    MutexLock lock(&mu_);
    while (under_way_ > 0) changed_.Wait(&mu_);
  }
  absl::Status status() const {
    MutexLock lock(&mu_);
    if (failures_in_row_ < options_.most_failures) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat(failures_in_row_, " deletions in a row failed, the last one: ", last_error_));
  }
  void AddTo(ImageSweepCounts& counts) const {
    MutexLock lock(&mu_);
    counts.deleted = deleted_;
    counts.deleted_bytes = deleted_bytes_;
    counts.failed = failed_;
    counts.last_error = last_error_;
  }

 private:
  const ImageSweepOptions options_;
  mutable Mutex mu_;
  CondVar changed_;
  uint32_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t failures_in_row_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t deleted_ ABSL_GUARDED_BY(mu_) = 0, deleted_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t failed_ ABSL_GUARDED_BY(mu_) = 0;
  std::string last_error_ ABSL_GUARDED_BY(mu_);
};

// Waits for one answer of a store.
template <typename Value>
class Awaited {
 public:
  void Set(ObjectAnswer answer, Value value) {
    MutexLock lock(&mu_);
    KVKEEP_CHECK(!here_);
    answer_ = std::move(answer);
    value_ = std::move(value);
    here_ = true;
    changed_.NotifyAll();
  }
  absl::StatusOr<Value> Take(absl::string_view what) {
    MutexLock lock(&mu_);
    while (!here_) changed_.Wait(&mu_);
    if (!answer_.ok()) return ToStatus(answer_.outcome, what, answer_.error);
    return std::move(value_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool here_ ABSL_GUARDED_BY(mu_) = false;
  ObjectAnswer answer_ ABSL_GUARDED_BY(mu_);
  Value value_ ABSL_GUARDED_BY(mu_){};
};

class NoBytes final : public ObjectSink {
 public:
  absl::Status Begin(const ObjectHead&) override { return absl::OkStatus(); }
  absl::Status Take(std::span<const std::byte>) override { return absl::OkStatus(); }
};

class Sweep {
 public:
  Sweep(ObjectStore& store, Clock* clock, const ImageSweepOptions& options)
      : store_(store),
        clock_(clock),
        options_(options),
        deletions_(std::make_shared<Deletions>(options)) {}
  // Waits until no deletion is under way.
  ~Sweep() { deletions_->AwaitAll(); }

  absl::StatusOr<ImageSweepCounts> Run(
      RandomSource* random, absl::FunctionRef<void(const ImageSweepCounts&)> each_page) {
    KVKEEP_ASSIGN_OR_RETURN(const UnixSeconds now, AskTime(random));
    before_ = UnixSeconds(now.value() - options_.lifetime.count());
    for (uint32_t shard = 0; shard < kObjectShards; ++shard) {
      std::string token, last;
      do {
        KVKEEP_ASSIGN_OR_RETURN(ObjectListing page, ListPage(ShardOfObjects(shard), token));
        for (const ListedObject& object : page.objects) {
          if (object.name <= last) return NoProgress(object.name);
          last = object.name;
          KVKEEP_RETURN_IF_ERROR(Look(object));
        }
        if (!page.next_token.empty() && page.objects.empty()) return NoProgress(token);
        token = std::move(page.next_token);
        if (token.empty() && shard + 1 == kObjectShards) deletions_->AwaitAll();
        ++counts_.pages;
        if (!options_.dry_run) deletions_->AddTo(counts_);
        each_page(counts_);
        KVKEEP_RETURN_IF_ERROR(deletions_->status());
      } while (!token.empty());
    }
    return counts_;
  }

 private:
  static absl::Status NoProgress(absl::string_view at) {
    return absl::DataLossError(absl::StrCat("a list of the images does not go on after ", at));
  }
  // Returns the store's time, told by an object that is put now.
  absl::StatusOr<UnixSeconds> AskTime(RandomSource* random) {
    std::array<std::byte, 8> drawn;
    random->Fill(drawn);
    const std::string name = absl::StrCat("check/sweep-", absl::BytesToHexString(AsText(drawn)));
    const auto put = std::make_shared<Awaited<bool>>();
    store_.Put({.name = name, .body = {drawn}, .deadline = clock_->Now() + options_.each_within},
               [put](ObjectAnswer answer) { put->Set(std::move(answer), true); });
    KVKEEP_RETURN_IF_ERROR(put->Take("put an object that tells the time").status());
    const auto got = std::make_shared<Awaited<ObjectHead>>();
    NoBytes sink;
    store_.Get({.name = name, .deadline = clock_->Now() + options_.each_within}, &sink,
               [got](ObjectAnswer answer) {
                 ObjectHead head = answer.head;
                 got->Set(std::move(answer), std::move(head));
               });
    const absl::StatusOr<ObjectHead> head = got->Take("read an object that tells the time");
    const auto gone = std::make_shared<Awaited<bool>>();
    store_.Delete({.name = name, .deadline = clock_->Now() + options_.each_within},
                  [gone](ObjectAnswer answer) { gone->Set(std::move(answer), true); });
    KVKEEP_RETURN_IF_ERROR(gone->Take("delete an object that told the time").status());
    KVKEEP_RETURN_IF_ERROR(head.status());
    if (!head->modified.has_value() || head->modified->value() <= 0) {
      return absl::UnavailableError("the store does not tell when an object was written");
    }
    return *head->modified;
  }
  absl::StatusOr<ObjectListing> ListPage(std::string prefix, std::string token) {
    const auto page = std::make_shared<Awaited<ObjectListing>>();
    store_.List({.prefix = std::move(prefix),
                 .token = std::move(token),
                 .deadline = clock_->Now() + options_.list_within},
                [page](ObjectAnswer answer, ObjectListing listing) {
                  page->Set(std::move(answer), std::move(listing));
                });
    return page->Take("list the images");
  }
  absl::Status Look(const ListedObject& object) {
    if (!IsNameOfObject(object.name)) {
      ++counts_.others;
    } else if (object.modified >= before_ || object.modified.value() <= 0) {
      ++counts_.kept;
      counts_.kept_bytes += object.bytes;
    } else if (options_.dry_run) {
      ++counts_.deleted;
      counts_.deleted_bytes += object.bytes;
    } else {
      return Delete(object);
    }
    return absl::OkStatus();
  }
  absl::Status Delete(const ListedObject& object) {
    for (MonotonicTime now = clock_->Now(); now < next_due_; now = clock_->Now()) {
      deletions_->Pause(next_due_ - now);
      KVKEEP_RETURN_IF_ERROR(deletions_->status());
    }
    // Late deletions are not made up for by faster ones.
    next_due_ = std::max(next_due_, clock_->Now()) +
                std::chrono::nanoseconds(std::chrono::seconds(1)) / options_.deletions_per_second;
    deletions_->Begin();
    store_.Delete({.name = object.name, .deadline = clock_->Now() + options_.each_within},
                  [deletions = deletions_, bytes = object.bytes](const ObjectAnswer& answer) {
                    deletions->End(bytes, answer);
                  });
    return deletions_->status();
  }

  ObjectStore& store_;
  Clock* const clock_;
  const ImageSweepOptions options_;
  const std::shared_ptr<Deletions> deletions_;
  UnixSeconds before_{0};
  MonotonicTime next_due_{0};  // a deletion
  ImageSweepCounts counts_;
};

}  // namespace

absl::Status ImageSweepOptions::Validate() const {
  if (lifetime < kShortestLifetime) {
    return absl::InvalidArgumentError(absl::StrCat("lifetime is ", lifetime.count(),
                                                   " s, allowed is an hour or more"));
  }
  if (deletions_per_second < 1 || deletions_per_second > 10'000) {
    return absl::InvalidArgumentError(absl::StrCat("deletions_per_second is ", deletions_per_second,
                                                   ", allowed are 1 to 10000"));
  }
  if (at_once < 1 || at_once > 256) {
    return absl::InvalidArgumentError(
        absl::StrCat("at_once is ", at_once, ", allowed are 1 to 256"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ImageSweepCounts> SweepImages(
    ObjectStore& store, Clock* clock, RandomSource* random, const ImageSweepOptions& options,
    absl::FunctionRef<void(const ImageSweepCounts&)> each_page) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  return Sweep(store, clock, options).Run(random, each_page);
}

}  // namespace kvkeep
