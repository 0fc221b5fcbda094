// DevicePlace: one device that the configuration names. It opens the device, has the store take it
// in, and tries again as long as that fails. So a drive that is locked, hung or not mounted joins
// by itself when it can. A device whose I/O fails while it is here is opened anew (failure_watch.h
// says when). A device that cannot be read is opened anew in any case. A device that takes no
// writes, as after a failed write of the index, is opened anew once its file system takes writes
// again or is unmounted. A device whose files were removed while it is here serves what it has, and
// is shown as degraded until the daemon ends.
//
//   opening --locked--> locked --the index is open--> open --the store has read it--> here
//    ^  ^                  |                           |                                |
//    |  +-- after a pause -+--------- failed <---------+                                |
//    +-------------------------- the store lets go of it -------------------------------+
//
// Owns the device and its executors; borrows its engine. The place's own thread opens the device,
// since that may hang with the drive. Calls that wait take a deadline. Thread-safe.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "server/observe/log.h"
#include "server/storage/failure_watch.h"
#include "tiers/base/clock.h"
#include "tiers/base/executor.h"
#include "tiers/base/file_identity.h"
#include "tiers/base/mutex.h"
#include "tiers/io/io_engine.h"
#include "tiers/nvme/nvme_device.h"
#include "tiers/store/store.h"

namespace kvkeep {

class DevicePlace {
 public:
  // The store's identity and its notes of known devices. The functions may be called on any thread.
  struct Home {
    StoreIdentity identity;
    // Returns whether this store has had a device in the directory. If so, an empty directory is a
    // file system that is not mounted.
    std::function<bool(const std::string& dir)> knows;
    std::function<absl::Status(const std::string& dir)> note;  // records a device there
    std::string known_file;                                    // with the records; for messages
  };
  enum class Step : uint8_t { kOpening, kLocked, kOpen, kHere, kFailed };

  // `engine` and `log` outlive it. Begins at once.
  DevicePlace(const NvmeDeviceOptions& options, const Home& home, IoEngine* engine,
              const Log* log);
  // REQUIRES: Stop said true; the store is gone.
  ~DevicePlace();
  DevicePlace(const DevicePlace&) = delete;
  DevicePlace& operator=(const DevicePlace&) = delete;

  // Returns whether this process has the device's locks: then no I/O of an earlier process is under
  // way there. Waits until that is known, also while the device is in use, at most until
  // `deadline`.
  bool AwaitLocks(MonotonicTime deadline);
  // Waits until the first attempt to open the device has ended. Returns false if `deadline` came
  // first.
  bool AwaitOpened(MonotonicTime deadline);
  // Waits until the device is here or has failed, at most until `deadline`.
  void AwaitHere(MonotonicTime deadline);
  // Returns why the last attempt failed; none if it did not.
  std::optional<NvmeDevice::OpenError> error() const;

  // Has the device join `store`, as its device `number`, whenever it is open from now on. The store
  // must live until Stop has said true.
  void JoinTo(Store* store, size_t number);
  // Logs what is wrong with the device now, and its changes from now on. Called when the daemon is
  // about to serve, not by a start that fails: its error says why.
  void BeginLog();
  // Completes the snapshot of a device that the store does not know, or whose files are gone.
  void AddTo(DeviceSnapshot* snapshot) const;
  // Waits until each executor has run everything that was posted before.
  void PassThrough();

  // Ends all attempts. Returns false if the thread had not ended by `deadline`: then this must not
  // be destroyed; only the process can be ended.
  bool Stop(MonotonicTime deadline);

 private:
  void Run();
  void Attempt();
  void JoinStore(Store* store, size_t number);
  // Waits until the device that is here is to be opened anew. Returns false if Stop came.
  bool AwaitFailure(Store* store, size_t number);
  // Checks whether the path of the superblock still leads to the one that was opened.
  void LookAtFiles();
  std::string SuperblockPath() const;
  std::string AfreshAdvice() const;
  bool MayBeOpened() const;
  bool LetGo(Store* store, size_t number);
  bool SleepFor(std::chrono::nanoseconds time);  // returns false if Stop came
  void Fail(NvmeDevice::OpenError error);
  void NoteError(NvmeDevice::OpenError error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Enter(Step step);
  void LogError() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::chrono::nanoseconds Pause() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsInUse() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const NvmeDeviceOptions options_;
  const Home home_;
  IoEngine* const engine_;
  const Log* const log_;
  ThreadPool index_{"kvkeep-index", 1}, sync_{"kvkeep-sync", 1};

  mutable Mutex mu_;
  CondVar changed_;
  Step step_ ABSL_GUARDED_BY(mu_) = Step::kOpening;
  bool was_locked_ ABSL_GUARDED_BY(mu_) = false;  // stays true, even if that attempt failed
  bool attempted_ ABSL_GUARDED_BY(mu_) = false;   // an attempt has ended
  uint32_t failures_ ABSL_GUARDED_BY(mu_) = 0;    // failed attempts in a row
  std::optional<absl::Status> left_ ABSL_GUARDED_BY(mu_);  // the store's answer to Detach
  bool stopping_ ABSL_GUARDED_BY(mu_) = false, ended_ ABSL_GUARDED_BY(mu_) = false;
  bool logs_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<NvmeDevice::OpenError> error_ ABSL_GUARDED_BY(mu_);
  bool files_gone_ ABSL_GUARDED_BY(mu_) = false;
  Store* store_ ABSL_GUARDED_BY(mu_) = nullptr;
  size_t number_ ABSL_GUARDED_BY(mu_) = 0;
  FailureWatch watch_;                  // the thread's
  std::optional<FileIdentity> superblock_;  // likewise: that of device_
  std::unique_ptr<NvmeDevice> device_;  // the thread's, and the store's while it knows it
  std::thread thread_;
};

}  // namespace kvkeep
