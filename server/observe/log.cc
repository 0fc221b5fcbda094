#include "server/observe/log.h"

#include <absl/time/time.h>

#include <optional>
#include <utility>
#include <vector>

#include "tiers/base/clock.h"

namespace kvkeep {
namespace {

bool NeedsQuotes(absl::string_view value) {
  if (value.empty()) return true;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);  // plain char has no sign on aarch64
    if (byte <= ' ' || byte >= 0x7f || c == '"' || c == '=' || c == '\\') return true;
  }
  return false;
}

// Returns a JSON string; logfmt quotes the same way.
std::string Quoted(absl::string_view value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

const char* LevelName(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::warn:
      return "warn";
    case spdlog::level::err:
    case spdlog::level::critical:
      return "error";
    case spdlog::level::debug:
      return "debug";
    case spdlog::level::trace:
      return "trace";
    default:
      return "info";
  }
}

}  // namespace

std::string FormatLogLine(LogFormat format, std::chrono::system_clock::time_point time,
                          spdlog::level::level_enum level, absl::string_view message,
                          std::span<const LogField> fields) {
  const std::string when =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromChrono(time), absl::UTCTimeZone());
  std::string line;
  const auto add = [&](absl::string_view name, absl::string_view value) {
    if (format == LogFormat::kJson) {
      absl::StrAppend(&line, line.empty() ? "{" : ",", Quoted(name), ":", Quoted(value));
    } else {
      absl::StrAppend(&line, line.empty() ? "" : " ", name, "=",
                      NeedsQuotes(value) ? Quoted(value) : std::string(value));
    }
  };
  add("time", when);
  add("level", LevelName(level));
  add("msg", message);
  for (const LogField& field : fields) add(field.name, field.value);
  if (format == LogFormat::kJson) line += '}';
  return line;
}

Log::Log(LogFormat format, spdlog::level::level_enum level, spdlog::sink_ptr sink)
    : format_(format),
      stderr_(sink == nullptr ? std::make_shared<StderrSink>() : nullptr),
      logger_(std::make_shared<spdlog::logger>(
          "kvkeepd", sink != nullptr ? std::move(sink) : spdlog::sink_ptr(stderr_))),
      always_(std::make_shared<spdlog::logger>("kvkeepd", logger_->sinks()[0])) {
  for (const std::shared_ptr<spdlog::logger>& logger : {logger_, always_}) {
    logger->set_pattern("%v");  // the line is made here
    logger->flush_on(spdlog::level::trace);
  }
  logger_->set_level(level);
  always_->set_level(spdlog::level::trace);
}

void Log::Always(absl::string_view message, Fields fields) const {
  WriteLine(*always_, spdlog::level::info, message, std::span(fields.begin(), fields.size()));
}

void Log::TellUnsaid() {
  for (const LogLimit::Unsaid& unsaid : limit_.TakeUnsaid(RealClock()->Now())) {
    const LogField fields[] = {{"lines", unsaid.site}, {"suppressed", absl::StrCat(unsaid.lines)}};
    WriteLine(*logger_, spdlog::level::warn, "lines were not written", fields);
  }
  const uint64_t lost = dropped();
  if (lost == dropped_told_) return;
  const LogField fields[] = {{"lines", absl::StrCat(lost - dropped_told_)}};
  const bool told = stderr_->TryLine(FormatLogLine(format_, std::chrono::system_clock::now(),
                                                   spdlog::level::warn,
                                                   "stderr did not take lines of the log", fields));
  if (told) dropped_told_ = lost;
}

void Log::Write(spdlog::level::level_enum level, absl::string_view message, Fields fields) const {
  if (!logger_->should_log(level)) return;
  const std::optional<uint64_t> unsaid = limit_.Ask(message, RealClock()->Now());
  if (!unsaid.has_value()) return;
  if (*unsaid == 0) {
    return WriteLine(*logger_, level, message, std::span(fields.begin(), fields.size()));
  }
  std::vector<LogField> more(fields);
  more.push_back({"suppressed", absl::StrCat(*unsaid)});
  WriteLine(*logger_, level, message, more);
}

void Log::WriteLine(spdlog::logger& to, spdlog::level::level_enum level, absl::string_view message,
                    std::span<const LogField> fields) const {
  const std::string line =
      FormatLogLine(format_, std::chrono::system_clock::now(), level, message, fields);
  to.log(level, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace kvkeep
