// What RocksDB does not look at with care in its own table files.
//
// It reads a file's properties before it compares their checksum, and in a build with asserts
// (Debian's) ends the process over some bits of them: at each start anew. So they are compared here
// before RocksDB opens anything. Only that: all else of a file RocksDB checks by itself, and what
// is of a kind not known here (another footer, another checksum) is left to it.
#pragma once

#include <absl/status/status.h>

#include <string>

namespace kvkeep {

// DataLoss names the first table file in this directory whose properties are damaged.
absl::Status CheckTableFiles(const std::string& dir);

}  // namespace kvkeep
