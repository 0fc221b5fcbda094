#include "tiers/remote/image_sweep.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <memory>
#include <utility>

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
  // For so long, or until too many failed.
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

class Sweep {
 public:
  Sweep(ObjectStore& store, Clock* clock, const ImageSweepOptions& options)
      : store_(store),
        clock_(clock),
        options_(options),
        deletions_(std::make_shared<Deletions>(options)),
        before_(static_cast<int64_t>(clock->UnixMicros() / 1'000'000) - options.lifetime.count()),
        began_(clock->Now()) {}
  // What was begun has ended: its callbacks have the store's caller to thank for memory.
  ~Sweep() { deletions_->AwaitAll(); }

  absl::StatusOr<ImageSweepCounts> Run(
      absl::FunctionRef<void(const ImageSweepCounts&)> each_page) {
    std::string token;
    do {
      KVKEEP_ASSIGN_OR_RETURN(ObjectListing page, ListPage(std::exchange(token, {})));
      for (const ListedObject& object : page.objects) KVKEEP_RETURN_IF_ERROR(Look(object));
      token = std::move(page.next_token);
      if (token.empty()) deletions_->AwaitAll();
      ++counts_.pages;
      if (!options_.dry_run) deletions_->AddTo(counts_);
      each_page(counts_);
      KVKEEP_RETURN_IF_ERROR(deletions_->status());
    } while (!token.empty());
    return counts_;
  }

 private:
  absl::StatusOr<ObjectListing> ListPage(std::string token) {
    struct Page {
      Mutex mu;
      CondVar changed;
      bool here ABSL_GUARDED_BY(mu) = false;
      ObjectAnswer answer ABSL_GUARDED_BY(mu);
      ObjectListing listing ABSL_GUARDED_BY(mu);
    };
    const auto page = std::make_shared<Page>();
    store_.List({.prefix = kImageNames,
                 .token = std::move(token),
                 .deadline = clock_->Now() + options_.each_within},
                [page](ObjectAnswer answer, ObjectListing listing) {
                  MutexLock lock(&page->mu);
                  page->answer = std::move(answer);
                  page->listing = std::move(listing);
                  page->here = true;
                  page->changed.NotifyAll();
                });
    MutexLock lock(&page->mu);
    while (!page->here) page->changed.Wait(&page->mu);
    if (!page->answer.ok()) {
      return ToStatus(page->answer.outcome, "list the images", page->answer.error);
    }
    return std::move(page->listing);
  }
  absl::Status Look(const ListedObject& object) {
    if (!IsNameOfObject(object.name)) {
      ++counts_.others;
    } else if (object.modified >= before_) {
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
    const auto due = began_ + std::chrono::nanoseconds(std::chrono::seconds(1)) * begun_ /
                                  options_.deletions_per_second;
    for (MonotonicTime now = clock_->Now(); now < due; now = clock_->Now()) {
      deletions_->Pause(due - now);
      KVKEEP_RETURN_IF_ERROR(deletions_->status());
    }
    deletions_->Begin();
    ++begun_;
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
  const UnixSeconds before_;
  const MonotonicTime began_;
  uint64_t begun_ = 0;  // deletions
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
    ObjectStore& store, Clock* clock, const ImageSweepOptions& options,
    absl::FunctionRef<void(const ImageSweepCounts&)> each_page) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  return Sweep(store, clock, options).Run(each_page);
}

}  // namespace kvkeep
