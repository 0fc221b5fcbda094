// Helpers of the tests of tiers/io: a file to do I/O on, patterned memory, waiting for callbacks.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/fakes/aligned_bytes.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/base/check.h"
#include "tiers/base/mutex.h"
#include "tiers/io/device.h"

namespace kvkeep {

// A sized file in a directory of its own under /tmp (or TMPDIR), removed with the object.
class TempFile {
 public:
  explicit TempFile(size_t bytes) {
    const char* const parent = std::getenv("TMPDIR");
    dir_ = std::string(parent != nullptr ? parent : "/tmp") + "/kvkeep_io_test.XXXXXX";
    KVKEEP_CHECK(mkdtemp(dir_.data()) != nullptr);
    path_ = dir_ + "/device";
    const int fd = open(path_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    KVKEEP_CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0 && close(fd) == 0);
  }
  ~TempFile() {
    unlink(path_.c_str());
    rmdir(dir_.c_str());
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string dir_;
  std::string path_;
};

inline void FillPattern(std::span<std::byte> bytes, uint64_t seed) {
  SeededRandom(seed).Fill(bytes);
}

inline bool SameBytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

// Collects statuses of operations that complete on other threads, in order of completion.
class Completions {
 public:
  IoOperation::Done Expect() {
    return [this](absl::Status status) {
      MutexLock lock(&mu_);
      statuses_.push_back(std::move(status));
      changed_.NotifyAll();
    };
  }
  // Blocks until `count` have completed. Fails the process after a minute: a lost callback.
  std::vector<absl::Status> Wait(size_t count) {
    MutexLock lock(&mu_);
    while (statuses_.size() < count) {
      KVKEEP_CHECK(changed_.WaitFor(&mu_, std::chrono::minutes(1)));
    }
    return statuses_;
  }
  size_t count() {
    MutexLock lock(&mu_);
    return statuses_.size();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<absl::Status> statuses_ ABSL_GUARDED_BY(mu_);
};

inline IoOperation MakeOperation(IoOperation::Kind kind, uint64_t offset,
                                 std::span<std::byte> bytes, IoOperation::Done done) {
  return {.kind = kind,
          .offset = DeviceOffset(offset),
          .data = bytes.data(),
          .bytes = bytes.size(),
          .done = std::move(done)};
}

// Submits one operation and waits for it. Not for a device that runs on a ManualExecutor.
inline absl::Status Do(Device& device, IoOperation::Kind kind, uint64_t offset,
                       std::span<std::byte> bytes) {
  Completions completions;
  device.Submit(MakeOperation(kind, offset, bytes, completions.Expect()));
  return completions.Wait(1).front();
}
inline absl::Status Read(Device& device, uint64_t offset, std::span<std::byte> bytes) {
  return Do(device, IoOperation::Kind::kRead, offset, bytes);
}
inline absl::Status Write(Device& device, uint64_t offset, std::span<std::byte> bytes) {
  return Do(device, IoOperation::Kind::kWrite, offset, bytes);
}

// Holds up one thread: the callback that runs Park() returns only after Release().
class Gate {
 public:
  void Park() {
    MutexLock lock(&mu_);
    parked_ = true;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(&mu_);
  }
  void WaitParked() {
    MutexLock lock(&mu_);
    while (!parked_) changed_.Wait(&mu_);
  }
  void Release() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool parked_ ABSL_GUARDED_BY(mu_) = false;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace kvkeep
