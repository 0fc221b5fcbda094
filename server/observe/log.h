// Log: one line an event, on stderr, as logfmt or JSON.
//
//   log.Info("serving", {{"socket", path}, {"chunks", absl::StrCat(n)}});
//   time=2026-01-02T03:04:05.678Z level=info msg=serving socket=/run/kvkeep/kvkeep.sock chunks=12
//
// For people: starts, stops, degradations. Never for a miss, never per request. Repeated messages
// are limited, message by message (log_limit.h): a line that stands for others says suppressed=N.
// If the log is not read, lines are dropped and no thread waits (stderr_sink.h). Thread-safe; the
// level may change at any time.
#pragma once

#include <absl/strings/string_view.h>
#include <spdlog/logger.h>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "server/observe/log_limit.h"
#include "server/observe/stderr_sink.h"

namespace kvkeep {

enum class LogFormat { kLogfmt, kJson };

struct LogField {
  absl::string_view name;  // lower_case, a word of ours
  std::string value;
};

// One line without its newline. Values may hold anything; the line stays one line, and valid UTF-8
// JSON when the values are UTF-8.
std::string FormatLogLine(LogFormat format, std::chrono::system_clock::time_point time,
                          spdlog::level::level_enum level, absl::string_view message,
                          std::span<const LogField> fields);

class Log {
 public:
  using Fields = std::initializer_list<LogField>;

  // Logs to stderr, or, for tests, to `sink`.
  Log(LogFormat format, spdlog::level::level_enum level, spdlog::sink_ptr sink = nullptr);

  void Info(absl::string_view message, Fields fields = {}) const {
    Write(spdlog::level::info, message, fields);
  }
  void Warn(absl::string_view message, Fields fields = {}) const {
    Write(spdlog::level::warn, message, fields);
  }
  void Error(absl::string_view message, Fields fields = {}) const {
    Write(spdlog::level::err, message, fields);
  }

  // Like Info, but ignores the level: for the audit log.
  void Always(absl::string_view message, Fields fields = {}) const;
  // Drops events below `level` from now on.
  void SetLogLevel(spdlog::level::level_enum level) { logger_->set_level(level); }
  // Logs how many lines were suppressed at sites that have been quiet since, and how many lines
  // stderr did not take. Call about once a second, from one thread.
  void TellUnsaid();
  // Returns the number of lines that stderr did not take.
  uint64_t dropped() const { return stderr_ == nullptr ? 0 : stderr_->dropped(); }

 private:
  void Write(spdlog::level::level_enum level, absl::string_view message, Fields fields) const;
  void WriteLine(spdlog::logger& to, spdlog::level::level_enum level, absl::string_view message,
                 std::span<const LogField> fields) const;

  const LogFormat format_;
  const std::shared_ptr<StderrSink> stderr_;  // null: lines go to a test's sink
  const std::shared_ptr<spdlog::logger> logger_;
  const std::shared_ptr<spdlog::logger> always_;  // to the same sink
  mutable LogLimit limit_;
  uint64_t dropped_told_ = 0;
};

}  // namespace kvkeep
