// FileIdentity: identifies the file that a path leads to. While a process has the file open, it can
// tell whether the path still leads there: no other file gets its number meanwhile.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

namespace kvkeep {

struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

// Returns the file at `path` itself, also when it is a symbolic link; nullopt if none can be seen
// there.
inline std::optional<FileIdentity> FileAt(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return std::nullopt;
  return FileIdentity{.device = info.st_dev, .inode = info.st_ino};
}

}  // namespace kvkeep
