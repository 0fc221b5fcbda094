#include "tiers/remote/fleet_epoch.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/hmac.h"

namespace kvkeep {
namespace {

// Below the prefix of chunks' names, so that rights for those are enough.
constexpr absl::string_view kEpochMagic = "KVKEPOCH", kEpochPrefix = "1/epoch/";
constexpr size_t kNumberAt = 8, kSealAt = 16, kNameDigits = 40;

using EpochPage = std::array<std::byte, FleetEpoch::kObjectBytes>;
static_assert(kSealAt + kHmacSha256Bytes == FleetEpoch::kObjectBytes);

EpochPage Seal(const Secret& key, uint64_t number) {
  EpochPage page;
  std::memcpy(page.data(), kEpochMagic.data(), kEpochMagic.size());
  StoreAt<uint64_t>(page.data() + kNumberAt, number);
  HmacSha256(key.bytes(), std::span(page).first(kSealAt),
             std::span(page).subspan<kSealAt, kHmacSha256Bytes>());
  return page;
}

}  // namespace

// Collects an object that is no longer than a page.
struct FleetEpoch::Sink final : ObjectSink {
  absl::Status Begin(const ObjectHead&) override { return absl::OkStatus(); }
  absl::Status Take(std::span<const std::byte> bytes) override {
    if (bytes.size() > page.size() - taken) return absl::DataLossError("longer than an epoch is");
    std::memcpy(page.data() + taken, bytes.data(), bytes.size());
    taken += bytes.size();
    return absl::OkStatus();
  }
  // Returns the object's number, or nullopt if no node of this fleet wrote it.
  std::optional<uint64_t> NumberBy(const Secret& key) const {
    if (taken != page.size()) return std::nullopt;
    const auto number = LoadAt<uint64_t>(page.data() + kNumberAt);
    const EpochPage right = Seal(key, number);
    if (CRYPTO_memcmp(right.data(), page.data(), right.size()) != 0) return std::nullopt;
    return number;
  }

  EpochPage page;
  size_t taken = 0;
};

// One read of all objects.
struct FleetEpoch::Round {
  enum class Told : uint8_t { kFailed, kBad, kAbsent, kNumber };  // from the worst
  struct Object {
    Sink sink;
    Told told = Told::kFailed;
    uint64_t number = 0;
    bool old = false;  // a lifecycle rule may take it soon
    ObjectOutcome outcome = ObjectOutcome::kBroken;
    ObjectError error;
  };

  Round(size_t keys, MonotonicTime at) : objects(keys), began(at) {}
  bool Any(Told told) const {
    return std::any_of(objects.begin(), objects.end(),
                       [told](const Object& object) { return object.told == told; });
  }
  uint64_t largest() const {
    uint64_t largest = 0;
    for (const Object& object : objects) largest = std::max(largest, object.number);
    return largest;
  }
  uint64_t smallest() const {
    uint64_t smallest = UINT64_MAX;
    for (const Object& object : objects) smallest = std::min(smallest, object.number);
    return smallest;
  }
  // Returns the first object that could not be read, else the first without a number.
  const Object& worst() const {
    return *std::min_element(objects.begin(), objects.end(), [](const Object& a, const Object& b) {
      return a.told < b.told;
    });
  }

  std::vector<Object> objects;  // by key, each for one answer
  const MonotonicTime began;
  RoundEnd ended;
  Mutex mu;
  size_t left ABSL_GUARDED_BY(mu) = 0;
};

FleetEpoch::FleetEpoch(std::vector<Secret> keys, ObjectStore* store, Clock* clock)
    : keys_(std::move(keys)), store_(*store), clock_(*clock) {
  KVKEEP_CHECK(!keys_.empty());
}

std::string FleetEpoch::NameOf(const Secret& key) {
  std::array<std::byte, kHmacSha256Bytes> digest;
  HmacSha256(key.bytes(), AsBytes(absl::string_view("name")), digest);
  return absl::StrCat(
      kEpochPrefix, absl::BytesToHexString(AsText(std::span(digest).first(kNameDigits / 2))));
}

bool FleetEpoch::certain() const {
  const MonotonicTime now = clock_.Now();
  MutexLock lock(&mu_);
  return now < certain_until_;
}

ObjectError FleetEpoch::error() const {
  MutexLock lock(&mu_);
  return error_;
}

FleetEpochCounters FleetEpoch::counters() const {
  MutexLock lock(&mu_);
  return counters_;
}

void FleetEpoch::AwaitFirst(std::chrono::milliseconds within) {
  const MonotonicTime until = clock_.Now() + within;
  MutexLock lock(&mu_);
  while (!tried_) {
    const auto left = until - clock_.Now();
    if (left.count() <= 0 || !answered_.WaitFor(&mu_, left)) return;
  }
}

void FleetEpoch::Tick() {
  {
    MutexLock lock(&mu_);
    if (reading_ || clock_.Now() < next_) return;
    reading_ = true;
  }
  StartRound([this](Round& round) {
    const bool failed = round.Any(Round::Told::kFailed);
    {
      MutexLock lock(&mu_);
      reading_ = false;
      next_ = clock_.Now() + (failed ? kAgain : kEvery);
    }
    if (!failed) Repair(round);
  });
}

// ---- read

void FleetEpoch::StartRound(RoundEnd ended) {
  const MonotonicTime now = clock_.Now();
  {
    MutexLock lock(&mu_);
    counters_.reads += keys_.size();
  }
  const auto round = std::make_shared<Round>(keys_.size(), now);
  round->ended = std::move(ended);
  {
    MutexLock lock(&round->mu);
    round->left = keys_.size();
  }
  for (size_t i = 0; i < keys_.size(); ++i) {
    store_.Get({.name = NameOf(keys_[i]), .range = {}, .if_match = "",
                .deadline = now + kAnswerWithin},
               &round->objects[i].sink,
               [this, round, i](ObjectAnswer answer) { OnRead(round, i, answer); });
  }
}

void FleetEpoch::OnRead(const std::shared_ptr<Round>& round, size_t key,
                        const ObjectAnswer& answer) {
  Round::Object& object = round->objects[key];
  // The sink cancels a read of an object that is too long; the store refuses one in an archive.
  const bool there = answer.ok() || answer.outcome == ObjectOutcome::kRefused ||
                     (answer.outcome == ObjectOutcome::kCancelled && answer.given > kObjectBytes);
  const std::optional<uint64_t> number =
      answer.ok() ? object.sink.NumberBy(keys_[key]) : std::nullopt;
  object.told = number.has_value()                         ? Round::Told::kNumber
                : there                                    ? Round::Told::kBad
                : answer.outcome == ObjectOutcome::kAbsent ? Round::Told::kAbsent
                                                           : Round::Told::kFailed;
  object.number = number.value_or(0);
  object.outcome = answer.outcome;
  object.error = answer.error;
  if (object.error.code.empty()) {
    object.error.code = there ? "NotAnEpoch" : std::string(kvkeep::NameOf(answer.outcome));
  }
  if (answer.head.modified.has_value() && answer.head.answered.has_value()) {
    const auto age =
        std::chrono::seconds(answer.head.answered->value() - answer.head.modified->value());
    object.old = age >= kRenewedAfter;
  }
  {
    MutexLock lock(&mu_);
    counters_.bad_objects += object.told == Round::Told::kBad;
    counters_.failed_reads += object.told == Round::Told::kFailed;
  }
  {
    MutexLock lock(&round->mu);
    if (--round->left > 0) return;
  }
  TakeRound(*round);
  round->ended(*round);
}

void FleetEpoch::TakeRound(const Round& round) {
  // A number that was read counts, whatever the other objects are.
  uint64_t known = number();
  const uint64_t told = round.largest();
  while (known < told && !number_.compare_exchange_weak(known, told)) {
  }
  // The number of a damaged object is lost; a node that has a number goes on with it.
  const bool failed =
      round.Any(Round::Told::kFailed) || (round.Any(Round::Told::kBad) && number() == 0);
  MutexLock lock(&mu_);
  tried_ = true;
  error_ = failed ? round.worst().error : ObjectError();
  if (!failed) certain_until_ = std::max(certain_until_, round.began + kCertainFor);
  answered_.NotifyAll();
}

// ---- write

void FleetEpoch::Repair(const Round& round) {
  const uint64_t number = this->number();
  {
    MutexLock lock(&mu_);
    if (number == 0 || clock_.Now() < no_repairs_until_) return;
  }
  std::vector<size_t> absent, others;
  for (size_t i = 0; i < keys_.size(); ++i) {
    const Round::Object& object = round.objects[i];
    if (object.told == Round::Told::kAbsent) {
      absent.push_back(i);
    } else if (object.number < number || object.old) {
      others.push_back(i);
    }
  }
  const auto noted = [this](const absl::Status& status) {
    if (status.ok() || absl::IsUnavailable(status)) return;
    MutexLock lock(&mu_);
    no_repairs_until_ = clock_.Now() + kRefusedFor;
  };
  // With if_absent, as another node may have begun an epoch since this one read.
  if (!absent.empty()) Write(absent, number, /*if_absent=*/true, noted);
  if (!others.empty()) Write(others, number, /*if_absent=*/false, noted);
}

void FleetEpoch::Begin(Done done) {
  const auto told = std::make_shared<Done>(std::move(done));
  StartRound([this, told](Round& round) { WriteLarger(round, std::move(*told)); });
}

void FleetEpoch::WriteLarger(const Round& round, Done done) {
  if (round.Any(Round::Told::kFailed)) {
    return std::move(done)(
        ToStatus(round.worst().outcome, "reading the fleet's epoch", round.worst().error));
  }
  const uint64_t next = std::max<uint64_t>(number() + 1, clock_.UnixMicros());
  std::vector<size_t> all(keys_.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  const auto told = std::make_shared<Done>(std::move(done));
  Write(all, next, /*if_absent=*/false, [this, next, told](const absl::Status& written) {
    if (!written.ok()) return std::move(*told)(written);
    // Another node may have written what it knew over it meanwhile.
    StartRound([next, told](const Round& back) {
      std::move(*told)(back.smallest() >= next
                           ? absl::OkStatus()
                           : absl::UnavailableError("the fleet's new epoch could not be read back; "
                                                    "begin it again"));
    });
  });
}

void FleetEpoch::Write(const std::vector<size_t>& keys, uint64_t number, bool if_absent,
                       Done done) {
  struct Writing {
    Mutex mu;
    size_t left ABSL_GUARDED_BY(mu) = 0;
    absl::Status status ABSL_GUARDED_BY(mu);
    Done done;
    std::vector<EpochPage> pages;  // until the last answer
  };
  const auto writing = std::make_shared<Writing>();
  writing->done = std::move(done);
  for (const size_t key : keys) writing->pages.push_back(Seal(keys_[key], number));
  {
    MutexLock lock(&writing->mu);
    writing->left = keys.size();
  }
  {
    MutexLock lock(&mu_);
    counters_.writes += keys.size();
  }
  const MonotonicTime deadline = clock_.Now() + kAnswerWithin;
  for (size_t i = 0; i < keys.size(); ++i) {
    store_.Put({.name = NameOf(keys_[keys[i]]),
                .body = {writing->pages[i]},
                .crc32c = {},
                .if_absent = if_absent,
                .deadline = deadline},
               [this, writing](ObjectAnswer answer) {
                 const absl::Status told =
                     ToStatus(answer.outcome, "writing the fleet's epoch", answer.error);
                 if (!told.ok()) {
                   MutexLock lock(&mu_);
                   ++counters_.failed_writes;
                 }
                 absl::Status status;
                 {
                   MutexLock lock(&writing->mu);
                   writing->status.Update(told);
                   if (--writing->left > 0) return;
                   status = writing->status;
                 }
                 std::move(writing->done)(std::move(status));
               });
  }
}

}  // namespace kvkeep
