// Checks the parts of RocksDB's table files that RocksDB does not check well itself.
//
// It reads a file's properties before it compares their checksum, and believes the footer, which
// has none, about where blocks lie. Over some bits of these it ends the process (the former in a
// build with asserts, as Debian's is): at each start anew. So these parts are checked here before
// RocksDB opens anything. RocksDB checks the rest of a file itself, and gets files of a kind not
// known here (another footer, another checksum) unchecked.
#pragma once

#include <absl/status/status.h>

#include <filesystem>
#include <string>
#include <vector>

namespace kvkeep {

// DataLoss names the first table file in this directory that must not be opened.
absl::Status CheckTableFiles(const std::string& dir);

// Keeps damaged table files out of RocksDB's way while it opens an index. If the index names such a
// file, RocksDB says that it is missing. Other files do not matter: RocksDB had made them but not
// synced them when the machine lost its power; it does without them, and would remove them.
class DamagedTables {
 public:
  // Looks at all table files, and moves damaged ones aside. REQUIRES: nobody has the index open.
  explicit DamagedTables(std::string dir);
  // Puts the files back where they were.
  ~DamagedTables();
  DamagedTables(const DamagedTables&) = delete;
  DamagedTables& operator=(const DamagedTables&) = delete;

  // Returns the status that CheckTableFiles would.
  const absl::Status& status() const { return status_; }
  // Returns false if a damaged file could not be moved; RocksDB must not see it.
  bool all_aside() const { return all_aside_; }
  // Removes the files, after RocksDB did without them.
  void Remove();

 private:
  absl::Status status_;
  bool all_aside_ = true;
  std::vector<std::filesystem::path> aside_;  // the names they had
};

}  // namespace kvkeep
