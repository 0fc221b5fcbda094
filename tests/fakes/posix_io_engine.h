// PosixIoEngine: an IoEngine of plain pread and pwrite, for tests that need files but no engine.
//
// An operation is carried out inside Submit and completes on the executor, so it is as
// deterministic as the executor. Thread-safe if the executor is.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

#include "tiers/base/executor.h"
#include "tiers/io/io_engine.h"

namespace kvkeep {

class PosixIoEngine final : public IoEngine {
 public:
  explicit PosixIoEngine(Executor* executor) : executor_(executor) {}

  absl::Status RegisterBuffer(std::span<std::byte>) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Device>> Open(const DeviceOptions& options) override;
  Stats stats() const override { return {}; }
  std::string describe() const override { return "posix (for tests)"; }
  void FailSyncs(bool fail) { syncs_fail_ = fail; }  // of all its devices

 private:
  Executor* const executor_;
  std::atomic<bool> syncs_fail_{false};
};

class PosixDevice final : public Device {
 public:
  PosixDevice(int fd, uint64_t size, Executor* executor, const std::atomic<bool>* syncs_fail)
      : fd_(fd), size_(size), executor_(executor), syncs_fail_(syncs_fail) {}
  ~PosixDevice() override { close(fd_); }

  void Submit(IoOperation operation) override {
    absl::Status status = Move(operation);
    executor_->Post([done = std::move(operation.done), status]() mutable {
      std::move(done)(std::move(status));
    });
  }
  absl::Status Sync() override {
    const bool synced = fdatasync(fd_) == 0 && !*syncs_fail_;
    return synced ? absl::OkStatus() : absl::DataLossError("fdatasync");
  }
  uint64_t size_bytes() const override { return size_; }

 private:
  absl::Status Move(const IoOperation& operation) {
    const auto offset = static_cast<off_t>(operation.offset.value());
    const ssize_t moved = operation.kind == IoOperation::Kind::kRead
                              ? pread(fd_, operation.data, operation.bytes, offset)
                              : pwrite(fd_, operation.data, operation.bytes, offset);
    return moved == static_cast<ssize_t>(operation.bytes) ? absl::OkStatus()
                                                          : absl::DataLossError("short");
  }

  const int fd_;
  const uint64_t size_;
  Executor* const executor_;
  const std::atomic<bool>* const syncs_fail_;
};

inline absl::StatusOr<std::unique_ptr<Device>> PosixIoEngine::Open(const DeviceOptions& options) {
  const int fd = open(options.path.c_str(), (options.read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
  if (fd < 0) return absl::NotFoundError(options.path);
  struct stat st;
  const bool sized = fstat(fd, &st) == 0;
  if (sized && (!options.lock || flock(fd, LOCK_EX | LOCK_NB) == 0)) {
    return std::make_unique<PosixDevice>(fd, static_cast<uint64_t>(st.st_size), executor_,
                                         &syncs_fail_);
  }
  close(fd);
  return absl::UnavailableError(options.path + ": locked by another process");
}

}  // namespace kvkeep
