// RemovalLog: records on disk which chunks were deleted on this node and may still lie beyond it.
// The next process removes those there that this one does not.
//
// A file of notes of 64 bytes, integers little-endian:
//      0  16  namespace         52   4  1: it is to be removed, 2: it was
//     16  32  key               56   8  XXH3-64 of bytes 0..56
//     48   4  part
// The first one names the format: "KVKREMOV", version u32 = 1, zeros, checksum. A note that does
// not fit its checksum counts as none, as the end of a log may be one after a loss of power. The
// file is written anew when most of its notes are obsolete.
#pragma once

#include <absl/container/btree_set.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tiers/base/executor.h"
#include "tiers/base/key.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

class RemovalLog {
 public:
  struct Note {
    ChunkId id;
    bool ended = false;  // it is removed there; else it is to be
  };

  using Notes = std::shared_ptr<const std::deque<Note>>;

  virtual ~RemovalLog() = default;
  // Returns the chunks that earlier processes have left to be removed.
  virtual std::vector<ChunkId> Left() const = 0;
  // Appends the notes in order. `done` is called later, on a thread of the log: OK means that they
  // outlive the process and, with `sync`, a loss of power. After an error some of them may be
  // noted.
  virtual void Write(Notes notes, bool sync,
                     std::function<void(absl::Status)> done) = 0;
};

// A RemovalLog in a file. Its owner makes sure that only one process uses it at a time.
class FileRemovalLog final : public RemovalLog {
 public:
  // Makes the file where there is none. FailedPrecondition: of another format.
  static absl::StatusOr<std::unique_ptr<FileRemovalLog>> Open(const std::string& path);

  std::vector<ChunkId> Left() const override { return left_; }
  void Write(Notes notes, bool sync,
             std::function<void(absl::Status)> done) override;
  void AwaitWritten() { AwaitTurn(*thread_); }

 private:
  explicit FileRemovalLog(std::string path) : path_(std::move(path)) {}
  absl::Status Read();
  absl::Status WriteAnew();  // what is live
  absl::Status Append(const std::deque<Note>& notes, bool sync);

  const std::string path_;
  std::vector<ChunkId> left_;  // at Open
  // Fields of the thread, once there is one.
  UniqueFd fd_;
  uint64_t bytes_ = 0;  // of the file that are good
  absl::btree_set<ChunkId> live_;
  std::unique_ptr<ThreadPool> thread_;  // last: it works on the rest
};

}  // namespace kvkeep
