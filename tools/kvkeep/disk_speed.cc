#include "tools/kvkeep/disk_speed.h"

#include <absl/strings/str_cat.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::tools {
namespace {

using std::chrono::steady_clock;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kPartOfFree = 10;

absl::Status CheckFree(const std::string& dir, uint64_t bytes) {
  struct statvfs space {};
  if (statvfs(dir.c_str(), &space) != 0) return absl::ErrnoToStatus(errno, dir);
  const uint64_t free = uint64_t{space.f_bavail} * space.f_frsize;
  if (bytes <= free / kPartOfFree) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      dir, ": ", bytes, " bytes are more than a tenth of the ", free, " that are free"));
}

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<char, FreeMemory>;

// Returns a buffer of random bytes, which no drive can compress.
Buffer RandomBuffer(uint64_t bytes, uint64_t seed) {
  Buffer buffer(static_cast<char*>(std::aligned_alloc(kPage, bytes)));
  KVKEEP_CHECK(buffer != nullptr);
  std::mt19937_64 random(seed);
  for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(buffer.get() + at, &word, sizeof(word));
  }
  return buffer;
}

// One direction: threads that take the next piece until all are done, or the time is over.
class Run {
 public:
  Run(int fd, bool write, const DiskSpeedOptions& options, uint64_t pieces,
      const std::vector<Buffer>& buffers)
      : fd_(fd), write_(write), options_(options), pieces_(pieces) {
    const auto began = steady_clock::now();
    deadline_ = began + options.most;
    std::vector<std::thread> threads;
    threads.reserve(buffers.size());
    for (const Buffer& buffer : buffers) {
      threads.emplace_back([this, memory = buffer.get()] { Move(memory); });
    }
    for (std::thread& thread : threads) thread.join();
    if (write && fdatasync(fd) != 0) error_ = errno;
    seconds_ = std::chrono::duration<double>(steady_clock::now() - began).count();
  }
  absl::Status status() const {
    if (error_ == 0) return absl::OkStatus();
    return absl::ErrnoToStatus(error_, write_ ? "writing" : "reading");
  }
  uint64_t done_pieces() const { return done_; }
  double rate() const {
    return static_cast<double>(done_ * options_.piece_bytes) / std::max(seconds_, 1e-9);
  }

 private:
  void Move(char* memory) {
    while (error_ == 0 && steady_clock::now() < deadline_) {
      const uint64_t piece = next_++;
      if (piece >= pieces_) return;
      const auto at = static_cast<off_t>(piece * options_.piece_bytes);
      const ssize_t moved = write_ ? pwrite(fd_, memory, options_.piece_bytes, at)
                                   : pread(fd_, memory, options_.piece_bytes, at);
      if (moved != static_cast<ssize_t>(options_.piece_bytes)) {
        error_ = moved < 0 ? errno : EIO;
        return;
      }
      ++done_;
    }
  }

  const int fd_;
  const bool write_;
  const DiskSpeedOptions& options_;
  const uint64_t pieces_;
  steady_clock::time_point deadline_;
  double seconds_ = 0;
  std::atomic<uint64_t> next_{0}, done_{0};
  std::atomic<int> error_{0};
};

}  // namespace

absl::Status DiskSpeedOptions::Validate() const {
  if (piece_bytes == 0 || piece_bytes % kPage != 0 || piece_bytes > 64 * kMiB) {
    return absl::InvalidArgumentError("piece_bytes must be a multiple of 4 KiB, at most 64 MiB");
  }
  if (bytes < piece_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes are ", bytes, ", at least one piece of ", piece_bytes, " is needed"));
  }
  if (depth < 1 || depth > 64) return absl::InvalidArgumentError("depth must be 1 to 64");
  return absl::OkStatus();
}

absl::StatusOr<DiskSpeed> MeasureDiskSpeed(const std::string& dir,
                                           const DiskSpeedOptions& options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  KVKEEP_RETURN_IF_ERROR(CheckFree(dir, options.bytes));
  const UniqueFd file(open(dir.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600));
  if (file.get() < 0) return absl::ErrnoToStatus(errno, dir);
  const uint64_t pieces = options.bytes / options.piece_bytes;
  // Allocates like a device's data files, so that no search for space is measured.
  const auto bytes = static_cast<off_t>(pieces * options.piece_bytes);
  if (fallocate(file.get(), 0, 0, bytes) != 0 && errno != EOPNOTSUPP) {
    return absl::ErrnoToStatus(errno, dir);
  }
  std::vector<Buffer> buffers;
  for (int i = 0; i < options.depth; ++i) {
    buffers.push_back(RandomBuffer(options.piece_bytes, static_cast<uint64_t>(i)));
  }
  const Run writing(file.get(), true, options, pieces, buffers);
  KVKEEP_RETURN_IF_ERROR(writing.status());
  // Pieces are taken in order, so the written ones are the front of the file.
  const Run reading(file.get(), false, options, writing.done_pieces(), buffers);
  KVKEEP_RETURN_IF_ERROR(reading.status());
  return DiskSpeed{.written_bytes = writing.done_pieces() * options.piece_bytes,
                   .read_bytes = reading.done_pieces() * options.piece_bytes,
                   .write_bytes_per_second = writing.rate(),
                   .read_bytes_per_second = reading.rate()};
}

}  // namespace kvkeep::tools
