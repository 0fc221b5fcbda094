// HangingTables: the machine's file system, on which a thread's sync of a table file does not
// return while it hangs.
#pragma once

#include <absl/strings/match.h>
#include <pthread.h>
#include <rocksdb/file_system.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "tiers/base/mutex.h"

namespace kvkeep {

class HangingTables final : public rocksdb::FileSystemWrapper {
 public:
  HangingTables() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}

  // Hangs from now on, for the threads of this name.
  void Hang(std::string thread) {
    MutexLock lock(&mu_);
    thread_ = std::move(thread);
  }
  void GoOn() {
    MutexLock lock(&mu_);
    thread_.clear();
    changed_.NotifyAll();
  }
  int hanging() const {
    MutexLock lock(&mu_);
    return hanging_;
  }

  const char* Name() const override { return "hanging-tables"; }
  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override {
    const rocksdb::IOStatus made = target()->NewWritableFile(name, options, file, debug);
    if (made.ok() && absl::EndsWith(name, ".sst")) {
      *file = std::make_unique<Table>(std::move(*file), this);
    }
    return made;
  }

 private:
  class Table final : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    Table(std::unique_ptr<rocksdb::FSWritableFile> file, HangingTables* site)
        : FSWritableFileOwnerWrapper(std::move(file)), site_(site) {}
    rocksdb::IOStatus Sync(const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override {
      site_->WaitWhileItHangs();
      return target()->Sync(options, debug);
    }

   private:
    HangingTables* const site_;
  };

  void WaitWhileItHangs() {
    std::array<char, 16> name{};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    MutexLock lock(&mu_);
    if (thread_ != name.data()) return;
    ++hanging_;
    while (!thread_.empty()) changed_.Wait(&mu_);
    --hanging_;
  }

  mutable Mutex mu_;
  CondVar changed_;
  std::string thread_ ABSL_GUARDED_BY(mu_);  // empty: none hangs
  int hanging_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kvkeep
