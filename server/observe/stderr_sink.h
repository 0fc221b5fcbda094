// StderrSink: writes lines to stderr without waiting for the reader. If a pipe or socket is full,
// because its reader hangs or was stopped, lines are dropped and counted, and the threads that log
// go on. The rest of a line that was cut off is written first when there is room again.
//
// Only a write to a file may wait, for its disk. Thread-safe.
#pragma once

#include <absl/strings/string_view.h>
#include <spdlog/sinks/sink.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "tiers/base/mutex.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

class StderrSink final : public spdlog::sinks::sink {
 public:
  // `fd` is borrowed; another than stderr is for tests.
  explicit StderrSink(int fd = 2);

  // Writes the message as it is, and a newline.
  void log(const spdlog::details::log_msg& message) override;
  void flush() override {}
  void set_pattern(const std::string& /*pattern*/) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter> /*formatter*/) override {}

  // Like log, for a line whose loss does not matter. Returns false if it was not written; the loss
  // is not counted.
  bool TryLine(absl::string_view line);
  // Returns the number of lines that were not written.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  enum class Kind { kFile, kSocket, kNonBlocking, kAsked };

  // Writes without waiting. Returns how many bytes of `text` were taken.
  size_t Write(absl::string_view text) const;
  // Makes one write that does not wait. Returns as write(2) does.
  ssize_t WriteOnce(absl::string_view text) const;

  const int fd_;
  UniqueFd own_;  // of kNonBlocking: the same pipe or terminal, opened anew
  Kind kind_ = Kind::kAsked;
  std::atomic<uint64_t> dropped_{0};
  Mutex mu_;
  std::string rest_ ABSL_GUARDED_BY(mu_);  // of a line that was cut off
};

}  // namespace kvkeep
