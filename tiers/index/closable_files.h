// ClosableFiles: a file system of RocksDB's whose open files can all be closed beneath it. A
// database that must not be closed (rocksdb_index.cc: its write failed) then holds neither its
// directory nor the file system that this lies on.
//
// Thread-safe but for Close. One file is one heap object more; each call one more virtual call.
#pragma once

#include <rocksdb/file_system.h>

#include <memory>
#include <set>
#include <string>

#include "tiers/base/mutex.h"

namespace kvkeep {

class ClosableFiles final : public rocksdb::FileSystemWrapper {
 public:
  // An open file or directory.
  class File {
   public:
    virtual ~File() = default;
    virtual void CloseBeneath() = 0;  // nobody may use the file after that
  };

  // `files` may be null: then the machine's own file system is used.
  explicit ClosableFiles(const std::shared_ptr<rocksdb::FileSystem>& files);

  // Closes all open files. REQUIRES: nobody uses it, or a file of it, any more.
  void Close();
  size_t open_files() const;

  const char* Name() const override { return "kvkeep-closable"; }
  rocksdb::IOStatus NewSequentialFile(const std::string& path, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                      rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus ReopenWritableFile(const std::string& path,
                                       const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* file,
                                       rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus ReuseWritableFile(const std::string& path, const std::string& old_path,
                                      const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSWritableFile>* file,
                                      rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus NewRandomRWFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSRandomRWFile>* file,
                                    rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus NewDirectory(const std::string& path, const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* directory,
                                 rocksdb::IODebugContext* context) override;

 private:
  template <typename Wrapper, typename Interface>
  class Closable;
  // Wraps an opened file; passes an error on.
  template <typename Wrapper, typename Interface>
  rocksdb::IOStatus Keep(rocksdb::IOStatus opened, std::unique_ptr<Interface>* file);

  mutable Mutex mu_;
  std::set<File*> open_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
