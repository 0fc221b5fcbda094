#include "server/observe/log.h"

#include <spdlog/sinks/ostream_sink.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

namespace kvkeep {
namespace {

// The log's output, as text.
struct Written {
  std::ostringstream text;
  spdlog::sink_ptr sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text);

  size_t lines() const {
    const std::string all = text.str();
    return static_cast<size_t>(std::count(all.begin(), all.end(), '\n'));
  }
  bool has(const std::string& part) const { return text.str().find(part) != std::string::npos; }
};

}  // namespace

TEST_CASE("a log line is one line of logfmt or one JSON object, whatever a value holds") {
  const auto time = std::chrono::system_clock::from_time_t(0) + std::chrono::milliseconds(5);
  const std::string nasty = "a \"b\"\n\\c=\x01";
  const std::vector<LogField> fields = {
      {"plain", "x/y"}, {"umlaut", "\xc3\xa4"}, {"nasty", nasty}, {"empty", ""}};
  const std::string logfmt =
      FormatLogLine(LogFormat::kLogfmt, time, spdlog::level::warn, "it happened", fields);
  CHECK(
      logfmt ==
      "time=1970-01-01T00:00:00.005Z level=warn msg=\"it happened\" plain=x/y umlaut=\"\xc3\xa4\" "
      "nasty=\"a \\\"b\\\"\\n\\\\c=\\u0001\" empty=\"\"");
  const std::string line =
      FormatLogLine(LogFormat::kJson, time, spdlog::level::err, "it happened", fields);
  const nlohmann::json json = nlohmann::json::parse(line);
  CHECK(json["level"] == "error");
  CHECK(json["nasty"] == nasty);
  CHECK(line.find('\n') == std::string::npos);
}

TEST_CASE("the level can be changed at any time") {
  Written written;
  Log log(LogFormat::kLogfmt, spdlog::level::warn, written.sink);
  log.Info("a");
  CHECK(written.lines() == 0);
  log.SetLogLevel(spdlog::level::info);
  log.Info("b");
  CHECK(written.has("msg=b"));
  log.SetLogLevel(spdlog::level::err);
  log.Warn("c");
  log.Always("d");
  CHECK_FALSE(written.has("msg=c"));
  CHECK(written.has("msg=d"));
}

TEST_CASE("a message that comes without end is written so often, other messages as ever") {
  Written written;
  const Log log(LogFormat::kLogfmt, spdlog::level::info, written.sink);
  constexpr uint64_t kMany = 100 * LogLimit::kBurst;
  for (uint64_t i = 0; i < kMany; ++i) log.Warn("again", {{"n", std::to_string(i)}});
  CHECK(written.lines() >= LogLimit::kBurst);
  CHECK(written.lines() < 2 * LogLimit::kBurst);  // some more on a machine that takes a second
  const size_t before = written.lines();
  log.Warn("another");
  log.Always("again");
  CHECK(written.lines() == before + 2);
  CHECK(written.has("msg=again n=0\n"));
}

}  // namespace kvkeep
