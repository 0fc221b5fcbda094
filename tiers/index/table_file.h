// What RocksDB does not look at with care in its own table files.
//
// It reads a file's properties before it compares their checksum, and believes the footer, which
// has none, about where blocks lie. Over some bits of these it ends the process (the former in a
// build with asserts, as Debian's is): at each start anew. So they are looked at here before
// RocksDB opens anything. Only that: all else of a file RocksDB checks by itself, and what
// is of a kind not known here (another footer, another checksum) is left to it.
#pragma once

#include <absl/status/status.h>

#include <filesystem>
#include <string>
#include <vector>

namespace kvkeep {

// DataLoss names the first table file in this directory that must not be opened.
absl::Status CheckTableFiles(const std::string& dir);

// Keeps damaged table files out of RocksDB's way while it opens an index. Those that the index
// names it misses then, and says so. Others are nothing to the index: RocksDB had made them and not
// synced them yet when the machine lost its power; it does without them, and would remove them.
class DamagedTables {
 public:
  // Looks at all of them. REQUIRES: nobody has the index open.
  explicit DamagedTables(std::string dir);
  // Puts them back where they were.
  ~DamagedTables();
  DamagedTables(const DamagedTables&) = delete;
  DamagedTables& operator=(const DamagedTables&) = delete;

  // As CheckTableFiles.
  const absl::Status& status() const { return status_; }
  // False: one could not be moved; RocksDB must not see it.
  bool all_aside() const { return all_aside_; }
  // RocksDB did without: they are removed.
  void Remove();

 private:
  absl::Status status_;
  bool all_aside_ = true;
  std::vector<std::filesystem::path> aside_;  // the names they had
};

}  // namespace kvkeep
