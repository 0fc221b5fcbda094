#include "tiers/index/rocksdb_env.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/unique_fd.h"
#include "tiers/index/closable_files.h"

namespace kvkeep {
namespace {

// Held while the descriptor is open.
class DirectoryLock final : public rocksdb::FileLock {
 public:
  explicit DirectoryLock(UniqueFd fd) : fd_(std::move(fd)) {}

 private:
  const UniqueFd fd_;
};

rocksdb::Status LockError(const char* what, const std::string& path) {
  const std::string about = absl::StrCat(what, ": ", path);
  const char* const why = std::strerror(errno);
  return errno == ENOSPC ? rocksdb::Status::NoSpace(about, why)
                         : rocksdb::Status::IOError(about, why);
}

}  // namespace

BackgroundThread::BackgroundThread(std::string name)
    : thread_(std::make_unique<ThreadPool>(std::move(name), 1)) {}

BackgroundThread::~BackgroundThread() {
  Release();
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_ = nullptr;
}

void BackgroundThread::Post(const Job& job) {
  {
    MutexLock lock(&mu_);
    KVKEEP_CHECK(!stopping_);
    jobs_.push_back(job);
    if (held_) return;  // Release posts it
  }
  thread_->Post([this] { RunNext(); });
}

void BackgroundThread::Hold() {
  MutexLock lock(&mu_);
  held_ = true;
}

void BackgroundThread::Release() {
  size_t waiting = 0;
  {
    MutexLock lock(&mu_);
    if (!std::exchange(held_, false)) return;
    waiting = jobs_.size();
  }
  for (size_t i = 0; i < waiting; ++i) thread_->Post([this] { RunNext(); });
}

int BackgroundThread::TakeBack(void* tag) {
  std::vector<Job> taken;
  {
    MutexLock lock(&mu_);
    const auto has_tag = [tag](const Job& job) { return job.tag == tag; };
    std::copy_if(jobs_.begin(), jobs_.end(), std::back_inserter(taken), has_tag);
    std::erase_if(jobs_, has_tag);
  }
  for (const Job& job : taken) {
    if (job.taken_back != nullptr) job.taken_back(job.argument);
  }
  return static_cast<int>(taken.size());
}

size_t BackgroundThread::queued() const {
  MutexLock lock(&mu_);
  return jobs_.size();
}

void BackgroundThread::RunNext() {
  Job job;
  {
    MutexLock lock(&mu_);
    if (jobs_.empty() || held_) return;  // it was taken back, or waits
    job = jobs_.front();
    jobs_.pop_front();
  }
  job.run(job.argument);
}

IndexEnv::IndexEnv(const std::shared_ptr<rocksdb::FileSystem>& files)
    : EnvWrapper(rocksdb::NewCompositeEnv(std::make_shared<ClosableFiles>(files))),
      flushes_(std::make_unique<BackgroundThread>("kvkeep-flush")),
      compactions_(std::make_unique<BackgroundThread>("kvkeep-compact")) {
  // Otherwise RocksDB would reach them by an adapter for old Envs without file systems.
  file_system_ = target()->GetFileSystem();
  system_clock_ = target()->GetSystemClock();
}

IndexEnv::~IndexEnv() { StopThreads(); }

void IndexEnv::StopThreads() {
  flushes_ = nullptr;
  compactions_ = nullptr;
}

void IndexEnv::CloseFiles() {
  KVKEEP_CHECK(flushes_ == nullptr && compactions_ == nullptr);
  static_cast<ClosableFiles*>(file_system_.get())->Close();
  MutexLock lock(&mu_);
  for (rocksdb::FileLock* const held : locks_) delete held;
  locks_.clear();
}

// The lock belongs to the open file, not to the process, so that it holds in this process too, and
// is not lost when some other descriptor of the file is closed.
rocksdb::Status IndexEnv::LockFile(const std::string& path, rocksdb::FileLock** lock) {
  *lock = nullptr;
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return LockError("While open a file for lock", path);
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (fcntl(fd.get(), F_OFD_SETLK, &whole) != 0) return LockError("While lock file", path);
  *lock = new DirectoryLock(std::move(fd));
  MutexLock mine(&mu_);
  locks_.insert(*lock);
  return rocksdb::Status::OK();
}

rocksdb::Status IndexEnv::UnlockFile(rocksdb::FileLock* lock) {
  {
    MutexLock mine(&mu_);
    KVKEEP_CHECK(locks_.contains(lock));
    locks_.erase(lock);
  }
  delete lock;
  return rocksdb::Status::OK();
}

BackgroundThread* IndexEnv::PoolOf(Priority pool) const {
  if (pool == Priority::HIGH) return flushes_.get();
  if (pool == Priority::LOW) return compactions_.get();
  return nullptr;
}

void IndexEnv::Schedule(void (*run)(void*), void* argument, Priority pool, void* tag,
                        void (*taken_back)(void*)) {
  BackgroundThread* const thread = PoolOf(pool);
  KVKEEP_CHECK(thread != nullptr);  // it looks how many threads there are first
  thread->Post({.run = run, .argument = argument, .tag = tag, .taken_back = taken_back});
}

int IndexEnv::UnSchedule(void* tag, Priority pool) {
  BackgroundThread* const thread = PoolOf(pool);
  return thread == nullptr ? 0 : thread->TakeBack(tag);
}

unsigned int IndexEnv::GetThreadPoolQueueLen(Priority pool) const {
  const BackgroundThread* const thread = PoolOf(pool);
  return thread == nullptr ? 0 : static_cast<unsigned int>(thread->queued());
}

}  // namespace kvkeep
