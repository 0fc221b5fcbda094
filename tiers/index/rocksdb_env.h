// IndexEnv: the Env of one index. RocksDB's default Env has one pool of threads for all databases
// of the process; there a flush that hangs on one device holds up those of every other device.
//
// An IndexEnv has one thread for flushes and one for compactions, as many as an index uses, and
// locks the directory by itself: RocksDB opens the lock files of all databases under one lock of
// its own. Databases share nothing that they wait for. Files come from `files`. All open files of
// the directory can be closed beneath a database that must not be closed.
//
// Thread-safe. It outlives its database. Its destructor runs what is still queued and joins the
// threads, so it waits for a disk that hangs.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <deque>
#include <memory>
#include <set>
#include <string>

#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

// A ThreadPool of one thread whose jobs can be taken back before they run: RocksDB takes back those
// of a database that is closed, so a job has a tag.
class BackgroundThread {
 public:
  struct Job {
    void (*run)(void*);
    void* argument;
    void* tag;
    void (*taken_back)(void*);  // called instead of `run`; null: nothing is
  };

  // `name` shows in `top -H` (at most 15 characters are kept).
  explicit BackgroundThread(std::string name);
  // Runs what is queued, held or not, then joins.
  ~BackgroundThread();
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  void Post(const Job& job);
  // Makes queued jobs wait until Release. A running job goes on.
  void Hold();
  void Release();
  // Takes back the queued jobs with this tag, but not a running one. Returns how many.
  int TakeBack(void* tag);
  size_t queued() const;

 private:
  void RunNext();

  mutable Mutex mu_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool held_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<ThreadPool> thread_;  // runs RunNext once for each job that may run
};

class IndexEnv final : public rocksdb::EnvWrapper {
 public:
  // `files` may be null: then the machine's own file system is used.
  explicit IndexEnv(const std::shared_ptr<rocksdb::FileSystem>& files);
  ~IndexEnv() override;

  // Stops the threads; else the destructor does. REQUIRES: the database is closed, or has cancelled
  // its background work, and nobody touches it any more.
  void StopThreads();
  // Closes the files, and the lock on the directory with them: another database may open it.
  // REQUIRES: StopThreads; nobody touches the database any more, not even its destructor.
  void CloseFiles();

  // Between the two calls no compaction begins, but flushes do.
  void HoldCompactions() { compactions_->Hold(); }
  void ReleaseCompactions() { compactions_->Release(); }

  const char* Name() const override { return "kvkeep-index"; }
  // Takes a lock that other processes of RocksDB respect, and that refuses a second one in this
  // process.
  rocksdb::Status LockFile(const std::string& path, rocksdb::FileLock** lock) override;
  rocksdb::Status UnlockFile(rocksdb::FileLock* lock) override;
  // As rocksdb::Env. HIGH is for flushes, LOW for compactions; the other pools have no thread, so
  // RocksDB uses these two.
  void Schedule(void (*run)(void*), void* argument, Priority pool, void* tag,
                void (*taken_back)(void*)) override;
  int UnSchedule(void* tag, Priority pool) override;
  unsigned int GetThreadPoolQueueLen(Priority pool) const override;
  int GetBackgroundThreads(Priority pool) override { return PoolOf(pool) == nullptr ? 0 : 1; }
  // Does nothing: the number of threads is fixed.
  void SetBackgroundThreads(int /*number*/, Priority /*pool*/) override {}
  void IncBackgroundThreadsIfNeeded(int /*number*/, Priority /*pool*/) override {}
  int ReserveThreads(int /*wanted*/, Priority /*pool*/) override { return 0; }
  int ReleaseThreads(int /*wanted*/, Priority /*pool*/) override { return 0; }

 private:
  BackgroundThread* PoolOf(Priority pool) const;

  Mutex mu_;
  std::set<rocksdb::FileLock*> locks_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<BackgroundThread> flushes_, compactions_;  // null once stopped
};

}  // namespace kvkeep
