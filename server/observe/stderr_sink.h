// StderrSink: writes lines to stderr, and waits for nobody who is to read them. A pipe or socket
// that is full, as its reader hangs or was stopped, costs lines, not the threads that log: those
// lines are counted. What was left of a line that was cut off comes first when there is room again.
//
// Only a file may have its writer wait, for its disk. Thread-safe.
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

  // The message as it is, and a newline.
  void log(const spdlog::details::log_msg& message) override;
  void flush() override {}
  void set_pattern(const std::string& /*pattern*/) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter> /*formatter*/) override {}

  // As log, for a line whose loss is no news. False: it was not written, and is not counted.
  bool TryLine(absl::string_view line);
  // Lines that were not written.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  enum class Kind { kFile, kSocket, kNonBlocking, kAsked };

  // How many bytes of `text` were taken, without waiting for anybody.
  size_t Write(absl::string_view text) const;
  // One call that does not wait: as write(2).
  ssize_t WriteOnce(absl::string_view text) const;

  const int fd_;
  UniqueFd own_;  // of kNonBlocking: the same pipe or terminal, opened anew
  Kind kind_ = Kind::kAsked;
  std::atomic<uint64_t> dropped_{0};
  Mutex mu_;
  std::string rest_ ABSL_GUARDED_BY(mu_);  // of a line that was cut off
};

}  // namespace kvkeep
