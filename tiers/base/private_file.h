// Files that decide who gets access: certificates, keys, tokens. Reads them with care, and notices
// changes.
//
// A user who can write such a file can gain access, and one who can read a key can act as the
// daemon: files whose owner or mode allows either to others are refused. Links are followed, as
// secrets are mounted that way. Stateless functions; FileChanges is for one thread.
#pragma once

#include <absl/status/statusor.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kvkeep {

enum class Secrecy {
  kPublic,  // others may read it
  kSecret,  // they may not, and the group may at most read
};

// Reads a file of at most `max_bytes`. InvalidArgument names the file and what is wrong with it.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, size_t max_bytes,
                                            Secrecy secrecy);

// Notices that files were changed or replaced. Polled, as links and network mounts tell nobody.
class FileChanges {
 public:
  // Ignores empty paths. The present files count as read: make this before reading them.
  explicit FileChanges(std::vector<std::string> paths);

  // Returns whether to read the files now: they differ from when last read, and have not changed
  // since the previous call, so nobody is writing them. After true they count as read.
  bool Due();

 private:
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;
    off_t bytes = -1;  // -1: not there
    int64_t modified_ns = 0, changed_ns = 0;

    bool operator==(const Stamp&) const = default;
  };
  std::vector<Stamp> Look() const;

  std::vector<std::string> paths_;
  std::vector<Stamp> read_, seen_;
};

}  // namespace kvkeep
