#include "tiers/index/closable_files.h"

#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOStatus;

template <typename Wrapper, typename Interface>
class ClosableFiles::Closable final : public Wrapper, public ClosableFiles::File {
 public:
  Closable(ClosableFiles* files, std::unique_ptr<Interface> target)
      : Wrapper(target.get()), files_(files), target_(std::move(target)) {
    MutexLock lock(&files_->mu_);
    KVKEEP_CHECK(files_->open_.insert(this).second);
  }
  ~Closable() override {
    MutexLock lock(&files_->mu_);
    files_->open_.erase(this);
  }
  void CloseBeneath() override { target_ = nullptr; }

 private:
  ClosableFiles* const files_;
  std::unique_ptr<Interface> target_;
};

template <typename Wrapper, typename Interface>
IOStatus ClosableFiles::Keep(IOStatus opened, std::unique_ptr<Interface>* file) {
  if (opened.ok()) {
    *file = std::make_unique<Closable<Wrapper, Interface>>(this, std::move(*file));
  }
  return opened;
}

ClosableFiles::ClosableFiles(const std::shared_ptr<rocksdb::FileSystem>& files)
    : FileSystemWrapper(files != nullptr ? files : rocksdb::FileSystem::Default()) {}

void ClosableFiles::Close() {
  MutexLock lock(&mu_);
  for (File* const file : open_) file->CloseBeneath();
  open_.clear();
}

size_t ClosableFiles::open_files() const {
  MutexLock lock(&mu_);
  return open_.size();
}

IOStatus ClosableFiles::NewSequentialFile(const std::string& path, const FileOptions& options,
                                          std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                          IODebugContext* context) {
  return Keep<rocksdb::FSSequentialFileWrapper>(
      target()->NewSequentialFile(path, options, file, context), file);
}

IOStatus ClosableFiles::NewRandomAccessFile(const std::string& path, const FileOptions& options,
                                            std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                            IODebugContext* context) {
  return Keep<rocksdb::FSRandomAccessFileWrapper>(
      target()->NewRandomAccessFile(path, options, file, context), file);
}

IOStatus ClosableFiles::NewWritableFile(const std::string& path, const FileOptions& options,
                                        std::unique_ptr<rocksdb::FSWritableFile>* file,
                                        IODebugContext* context) {
  return Keep<rocksdb::FSWritableFileWrapper>(
      target()->NewWritableFile(path, options, file, context), file);
}

IOStatus ClosableFiles::ReopenWritableFile(const std::string& path, const FileOptions& options,
                                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                                           IODebugContext* context) {
  return Keep<rocksdb::FSWritableFileWrapper>(
      target()->ReopenWritableFile(path, options, file, context), file);
}

IOStatus ClosableFiles::ReuseWritableFile(const std::string& path, const std::string& old_path,
                                          const FileOptions& options,
                                          std::unique_ptr<rocksdb::FSWritableFile>* file,
                                          IODebugContext* context) {
  return Keep<rocksdb::FSWritableFileWrapper>(
      target()->ReuseWritableFile(path, old_path, options, file, context), file);
}

IOStatus ClosableFiles::NewRandomRWFile(const std::string& path, const FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomRWFile>* file,
                                        IODebugContext* context) {
  return Keep<rocksdb::FSRandomRWFileWrapper>(
      target()->NewRandomRWFile(path, options, file, context), file);
}

IOStatus ClosableFiles::NewDirectory(const std::string& path, const rocksdb::IOOptions& options,
                                     std::unique_ptr<rocksdb::FSDirectory>* directory,
                                     IODebugContext* context) {
  return Keep<rocksdb::FSDirectoryWrapper>(
      target()->NewDirectory(path, options, directory, context), directory);
}

}  // namespace kvkeep
