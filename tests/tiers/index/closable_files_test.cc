// An index whose write failed, and another one that is opened in its place.
#include "tiers/index/closable_files.h"

#include <absl/strings/match.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/fakes/scratch_dir.h"
#include "tests/tiers/index/records.h"
#include "tiers/index/rocksdb_index.h"

namespace kvkeep {
namespace {

const Uuid kOfClosable = *Uuid::FromBytes("this device");

// The machine's file system, whose logs take no more once told to.
class FullLogs final : public rocksdb::FileSystemWrapper {
 public:
  FullLogs() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  void Fill(bool full) { full_ = full; }

  const char* Name() const override { return "full-logs"; }
  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override {
    const rocksdb::IOStatus made = target()->NewWritableFile(name, options, file, debug);
    if (made.ok() && absl::EndsWith(name, ".log")) {
      *file = std::make_unique<LogFile>(std::move(*file), &full_);
    }
    return made;
  }

 private:
  class LogFile final : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    LogFile(std::unique_ptr<rocksdb::FSWritableFile> file, const std::atomic<bool>* full)
        : FSWritableFileOwnerWrapper(std::move(file)), full_(full) {}
    using FSWritableFileOwnerWrapper::Append;
    rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override {
      if (*full_) return rocksdb::IOStatus::NoSpace("full");
      return FSWritableFileOwnerWrapper::Append(data, options, debug);
    }

   private:
    const std::atomic<bool>* const full_;
  };

  std::atomic<bool> full_{false};
};

size_t DescriptorsBelow(const std::string& dir) {
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own
    found += absl::StartsWith(std::filesystem::read_symlink(entry, gone).string(), dir);
  }
  return found;
}

}  // namespace

TEST_CASE("an index whose write failed holds nothing of its directory, which is opened anew") {
  const ScratchDir scratch;
  const std::string dir = scratch / "index";
  const auto files = std::make_shared<FullLogs>();
  for (uint32_t round = 0; round < 3; ++round) {
    absl::StatusOr<std::unique_ptr<ChunkIndex>> index = OpenRocksDbIndex(
        dir, kOfClosable, {.create = round == 0, .file_system = files});
    INFO(index.status().ToString());
    REQUIRE(index.ok());
    REQUIRE((*index)->Commit({.adds = {NumberedRecord(round)}}).ok());
    CHECK(DescriptorsBelow(dir) > 0);
    files->Fill(true);
    CHECK(absl::IsResourceExhausted((*index)->Commit({.adds = {NumberedRecord(100 + round)}})));
    files->Fill(false);
    CHECK_FALSE((*index)->Commit({.adds = {NumberedRecord(200 + round)}}).ok());
    *index = nullptr;
    CHECK(DescriptorsBelow(dir) == 0);
  }
  const auto index = OpenRocksDbIndex(dir, kOfClosable, {});
  REQUIRE(index.ok());
  uint32_t records = 0;
  REQUIRE((*index)->Scan([&records](const IndexRecord&) {
    ++records;
    return true;
  }).ok());
  CHECK(records == 3);
}

TEST_CASE("files know when they are closed") {
  const ScratchDir scratch;
  ClosableFiles files(nullptr);
  std::unique_ptr<rocksdb::FSWritableFile> file;
  REQUIRE(files.NewWritableFile(scratch / "one", {}, &file, nullptr).ok());
  std::unique_ptr<rocksdb::FSDirectory> directory;
  REQUIRE(files.NewDirectory(scratch / "", {}, &directory, nullptr).ok());
  CHECK(files.open_files() == 2);
  directory = nullptr;
  CHECK(files.open_files() == 1);
  CHECK_FALSE(files.NewDirectory(scratch / "none", {}, &directory, nullptr).ok());
  files.Close();
  CHECK(files.open_files() == 0);
  CHECK(DescriptorsBelow(scratch / "") == 0);
  file = nullptr;
}

}  // namespace kvkeep
