#include "server/storage/device_place.h"

#include <absl/strings/str_cat.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/random.h"
#include "tiers/index/rocksdb_index.h"
#include "tiers/nvme/device_names.h"
#include "tiers/nvme/probe.h"

namespace kvkeep {
namespace {

// Time until the next attempt to open a device. A device in use or not mounted waits kPause; others
// wait longer with each failed attempt, since each may read all of the index.
constexpr std::chrono::seconds kPause{2}, kLongestPause{60};
// Between the first attempts to open a device in use: an earlier process may be about to end.
constexpr std::chrono::milliseconds kShortPause{50};
constexpr uint32_t kShortPauses = 40;
constexpr std::chrono::seconds kLook{1};  // between looks at a device that is here

template <typename Condition>
void AwaitUntil(CondVar& changed, Mutex* mu, MonotonicTime deadline, Condition condition)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
  while (!condition()) {
    const MonotonicTime now = RealClock()->Now();
    if (now >= deadline) return;
    changed.WaitFor(mu, deadline - now);
  }
}

}  // namespace

DevicePlace::DevicePlace(const NvmeDeviceOptions& options, const Home& home, IoEngine* engine,
                         const Log* log)
    : options_(options),
      home_(home),
      engine_(engine),
      log_(log),
      thread_([this] { Run(); }) {}

DevicePlace::~DevicePlace() {
  {
    MutexLock lock(&mu_);
    KVKEEP_CHECK(ended_);
  }
  thread_.join();
}

void DevicePlace::Run() {
  pthread_setname_np(pthread_self(), "kvkeep-open");
  while (true) {
    Attempt();
    bool here = false;
    Store* store = nullptr;
    size_t number = 0;
    std::chrono::nanoseconds pause{0};
    {
      MutexLock lock(&mu_);
      attempted_ = true;
      changed_.NotifyAll();
      here = step_ == Step::kHere;
      store = store_;
      number = number_;
      pause = Pause();
    }
    if (here ? !AwaitFailure(store, number) : !SleepFor(pause)) break;
  }
  MutexLock lock(&mu_);
  ended_ = true;
  changed_.NotifyAll();
}

std::chrono::nanoseconds DevicePlace::Pause() const {
  if (IsInUse() && failures_ <= kShortPauses) return kShortPause;
  if (IsInUse() || (error_.has_value() && absl::IsNotFound(error_->status))) return kPause;
  return std::min<std::chrono::seconds>(kPause * (1 << std::min(failures_, 5u)), kLongestPause);
}

bool DevicePlace::IsInUse() const {
  return error_.has_value() && error_->failure == OpenFailure::kInUse;
}

void DevicePlace::Attempt() {
  Enter(Step::kOpening);
  NvmeDeviceOptions options = options_;
  bool first = false;
  {
    MutexLock lock(&mu_);
    first = !attempted_;
  }
  // A directory that appears later may be a mount point before its mount.
  options.may_format = first && !home_.knows(options.dir);
  NvmeDevice::OpenResult opened =
      OpenNvmeDevice(options, home_.identity.store_uuid, home_.identity.mac_key, engine_,
                     RealRandom(), [this] { Enter(Step::kLocked); });
  if (opened.device == nullptr) return Fail(std::move(opened.error));
  if (const uint64_t damages = opened.device->index().stats().log_damages; damages > 0) {
    log_->Warn(
        "the log of a device's index is damaged: what was logged after the damage is lost, durable "
        "chunks too; each chunk is checked before it is trusted",
        {{"path", options.dir}, {"damaged_places", absl::StrCat(damages)}});
  }
  if (absl::Status noted = home_.note(options.dir); !noted.ok()) {
    return Fail({OpenFailure::kBroken, std::move(noted)});
  }
  device_ = std::move(opened.device);
  superblock_ = FileAt(SuperblockPath());
  Store* store = nullptr;
  size_t number = 0;
  {
    MutexLock lock(&mu_);
    error_.reset();
    attempted_ = true;
    step_ = Step::kOpen;
    changed_.NotifyAll();
    while (store_ == nullptr && !stopping_) changed_.Wait(&mu_);
    if (stopping_) return;
    store = store_;
    number = number_;
  }
  JoinStore(store, number);
}

void DevicePlace::JoinStore(Store* store, size_t number) {
  const MonotonicTime began = RealClock()->Now();
  std::optional<absl::Status> joined;
  store->Attach(number,
                {.device = device_.get(),
                 .index_executor = &index_,
                 .sync_executor = &sync_},
                [this, &joined](absl::Status status) {
                  MutexLock lock(&mu_);
                  joined = std::move(status);
                  changed_.NotifyAll();
                });
  {
    MutexLock lock(&mu_);
    while (!joined.has_value()) changed_.Wait(&mu_);
  }
  if (!joined->ok()) {
    device_.reset();
    return Fail({OpenFailure::kBroken, *std::move(joined)});
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(RealClock()->Now() -
                                                                          began);
  const uint64_t chunks = store->snapshot().devices[number].chunks;
  MutexLock lock(&mu_);
  step_ = Step::kHere;
  failures_ = 0;  // only here, as joins may fail again and again, too
  changed_.NotifyAll();
  if (!logs_) return;
  log_->Info("a device has joined", {{"path", options_.dir},
                                     {"chunks", absl::StrCat(chunks)},
                                     {"took_ms", absl::StrCat(took.count())}});
}

bool DevicePlace::AwaitFailure(Store* store, size_t number) {
  while (SleepFor(kLook)) {
    LookAtFiles();
    const FailureWatch::Advice advice =
        watch_.Look(store->StateOfAnswering(number), RealClock()->Now());
    if (advice == FailureWatch::Advice::kNothing) continue;
    if (advice == FailureWatch::Advice::kProbe && !MayBeOpened()) continue;
    watch_.OpensAnew();
    return LetGo(store, number);
  }
  return false;
}

// Checks the device's files: a device whose directory was emptied works until they are closed.
void DevicePlace::LookAtFiles() {
  const bool gone = FileAt(SuperblockPath()) != superblock_;
  MutexLock lock(&mu_);
  if (std::exchange(files_gone_, gone) == gone) return;
  if (gone) {
    log_->Error("the files of a device are gone: its chunks are lost when the daemon ends",
                {{"path", options_.dir}, {"to_do", AfreshAdvice()}});
  } else {
    log_->Info("the files of a device are in their place again", {{"path", options_.dir}});
  }
}

std::string DevicePlace::SuperblockPath() const {
  return absl::StrCat(options_.dir, "/", kSuperblockName);
}

std::string DevicePlace::AfreshAdvice() const {
  return absl::StrCat("to start afresh there: stop the daemon, empty the directory, remove its ",
                      "line from ", home_.known_file, ", start");
}

// Returns true if the file system takes writes, or is no longer mounted: it cannot be mounted anew
// while we have its files open.
bool DevicePlace::MayBeOpened() const {
  if (!OneMoreIndexMayFail()) return false;
  const absl::Status probed = ProbeDevice(options_.dir);
  return probed.ok() || absl::IsNotFound(probed);
}

// A store that drains keeps the device until Stop.
bool DevicePlace::LetGo(Store* store, size_t number) {
  log_->Warn("a device whose I/O failed is let go of, and opened anew", {{"path", options_.dir}});
  {
    MutexLock lock(&mu_);
    left_.reset();
  }
  store->Detach(number, [this](absl::Status status) {
    MutexLock lock(&mu_);
    left_ = std::move(status);
    changed_.NotifyAll();
  });
  {
    MutexLock lock(&mu_);
    while (!stopping_ && (!left_.has_value() || !left_->ok())) changed_.Wait(&mu_);
    if (stopping_) return false;
    step_ = Step::kOpening;
    files_gone_ = false;
  }
  device_.reset();
  return true;
}

bool DevicePlace::SleepFor(std::chrono::nanoseconds time) {
  MutexLock lock(&mu_);
  AwaitUntil(changed_, &mu_, RealClock()->Now() + time, [this] {
    mu_.AssertHeld();
    return stopping_;
  });
  return !stopping_;
}

void DevicePlace::Fail(NvmeDevice::OpenError error) {
  if (absl::IsNotFound(error.status)) {
    error.status = absl::NotFoundError(
        absl::StrCat(error.status.message(), "; mount it, or, to start afresh there, remove its ",
                     "line from ", home_.known_file));
  }
  Store* store = nullptr;
  size_t number = 0;
  {
    MutexLock lock(&mu_);
    store = store_;
    number = number_;
    NoteError(std::move(error));
  }
  if (store != nullptr) store->NotComing(number);
}

void DevicePlace::NoteError(NvmeDevice::OpenError error) {
  const bool said = error_.has_value() && error_->status == error.status;
  error_ = std::move(error);
  ++failures_;
  const bool drains = absl::IsCancelled(error_->status);
  if (logs_ && !said && !stopping_ && !drains) LogError();  // the same error is logged once
  step_ = Step::kFailed;
  changed_.NotifyAll();
}

void DevicePlace::LogError() {
  log_->Warn("device is offline, its chunks are misses",
             {{"path", options_.dir}, {"why", std::string(error_->status.message())}});
}

void DevicePlace::BeginLog() {
  MutexLock lock(&mu_);
  logs_ = true;
  if (error_.has_value()) LogError();
}

void DevicePlace::Enter(Step step) {
  MutexLock lock(&mu_);
  step_ = step;
  was_locked_ = was_locked_ || step == Step::kLocked;
  changed_.NotifyAll();
}

bool DevicePlace::AwaitLocks(MonotonicTime deadline) {
  MutexLock lock(&mu_);
  AwaitUntil(changed_, &mu_, deadline, [this] {
    mu_.AssertHeld();
    return was_locked_ || (step_ == Step::kFailed && !IsInUse());
  });
  return was_locked_;
}

bool DevicePlace::AwaitOpened(MonotonicTime deadline) {
  MutexLock lock(&mu_);
  AwaitUntil(changed_, &mu_, deadline, [this] {
    mu_.AssertHeld();
    return attempted_;
  });
  return attempted_;
}

void DevicePlace::AwaitHere(MonotonicTime deadline) {
  MutexLock lock(&mu_);
  AwaitUntil(changed_, &mu_, deadline, [this] {
    mu_.AssertHeld();
    return step_ == Step::kHere || step_ == Step::kFailed;
  });
}

std::optional<NvmeDevice::OpenError> DevicePlace::error() const {
  MutexLock lock(&mu_);
  return error_;
}

void DevicePlace::JoinTo(Store* store, size_t number) {
  bool failed = false;
  {
    MutexLock lock(&mu_);
    store_ = store;
    number_ = number;
    failed = error_.has_value();
    changed_.NotifyAll();
  }
  if (failed) store->NotComing(number);
}

void DevicePlace::AddTo(DeviceSnapshot* snapshot) const {
  if (!snapshot->path.empty()) {  // the store knows it
    MutexLock lock(&mu_);
    if (!files_gone_ || snapshot->state != DeviceState::kOk) return;
    snapshot->state = DeviceState::kDegraded;
    snapshot->message =
        absl::StrCat(SuperblockPath(), ": was removed or replaced under the daemon; what the ",
                     "device has is served until the daemon ends, and lost then; ", AfreshAdvice());
    return;
  }
  snapshot->path = options_.dir;
  snapshot->capacity_bytes = snapshot->built_bytes = options_.capacity_bytes;
  MutexLock lock(&mu_);
  if (error_.has_value()) {
    snapshot->message = std::string(error_->status.message());
  } else {
    snapshot->state = DeviceState::kJoining;
    snapshot->message = step_ == Step::kOpening ? "it is being locked" : "its index is opened";
  }
}

void DevicePlace::PassThrough() {
  AwaitTurn(index_);
  AwaitTurn(sync_);
}

bool DevicePlace::Stop(MonotonicTime deadline) {
  MutexLock lock(&mu_);
  stopping_ = true;
  changed_.NotifyAll();
  AwaitUntil(changed_, &mu_, deadline, [this] {
    mu_.AssertHeld();
    return ended_;
  });
  return ended_;
}

}  // namespace kvkeep
