// Files that say who may come in: certificates, keys, tokens. Read with care, and noticed when they
// change.
//
// Whoever can write one of these can let himself in, and whoever can read a key can be the daemon:
// files are refused whose owner or mode allows either to others. Links are followed, as secrets are
// mounted that way. Stateless functions; FileChanges is for one thread.
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

// At most `max_bytes`. InvalidArgument names the file and what is wrong with it.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, size_t max_bytes,
                                            Secrecy secrecy);

// Notices that files were changed or replaced. Polled, as links and network mounts tell nobody.
class FileChanges {
 public:
  // Empty paths are no files. What is there now counts as read: make this before reading.
  explicit FileChanges(std::vector<std::string> paths);

  // Whether they are to be read now: they are not as they were when last read, and have stood still
  // since the call before, so that nobody is writing them. After true they count as read.
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
