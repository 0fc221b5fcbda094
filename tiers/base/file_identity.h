// FileIdentity: which file a path leads to. Whoever has a file open, and has noted its identity,
// can tell later whether the path still leads there: a number is not given to another file as long
// as this one is open.
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

// The file at `path` itself, also when it is a symbolic link. None: nothing can be seen there.
inline std::optional<FileIdentity> FileAt(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return std::nullopt;
  return FileIdentity{.device = info.st_dev, .inode = info.st_ino};
}

}  // namespace kvkeep
