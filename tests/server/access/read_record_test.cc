#include "server/access/read_record.h"

#include <absl/strings/str_cat.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <sstream>

#include "tests/fakes/manual_clock.h"

namespace kvkeep {
namespace {

struct RecordRig {
  size_t lines() const {
    const std::string all = text.str();
    return static_cast<size_t>(std::count(all.begin(), all.end(), '\n'));
  }
  bool said(const std::string& part) const { return text.str().find(part) != std::string::npos; }
  static ForeignRead Of(const std::string& peer, uint64_t chunks) {
    return {.reader = std::make_shared<SessionInfo>(
                SessionInfo{.client_name = "c", .peer = peer, .tenant = TenantId(1)}),
            .ns = *NamespaceDigest::FromBytes("ns"),
            .owner = TenantId(0),
            .chunks = chunks,
            .bytes = chunks * 10};
  }

  std::ostringstream text;
  Log log{LogFormat::kLogfmt, spdlog::level::err,
          std::make_shared<spdlog::sinks::ostream_sink_mt>(text)};
  ManualClock clock;
  std::optional<ReadRecord> record{std::in_place, &log, &clock,
                                   std::vector<std::string>{"", "b"}};
};

}  // namespace

TEST_CASE("a reader's first read is a line of the audit, then one a minute counts what it read") {
  RecordRig t;
  t.record->Note({RecordRig::Of("pid=7", 3)});
  CHECK(t.lines() == 1);
  CHECK(t.said("msg=audit call=ReadOther who=\"pid=7\" what=\"tenant b read 3 chunks, 30 bytes of "
               "payload, of tenant default, namespace 6e73"));
  for (int second = 0; second < 59; ++second) {
    t.clock.Advance(std::chrono::seconds(1));
    t.record->Note({RecordRig::Of("pid=7", 2)});
  }
  CHECK(t.lines() == 1);
  t.clock.Advance(std::chrono::seconds(1));
  t.record->Note({});
  CHECK(t.lines() == 2);
  CHECK(t.said("read 118 chunks, 1180 bytes"));
  // It stops: nothing reports that, and its next read is a first one.
  t.clock.Advance(std::chrono::seconds(61));
  t.record->Note({});
  CHECK(t.lines() == 2);
  t.record->Note({RecordRig::Of("pid=7", 1)});
  CHECK(t.lines() == 3);
}

TEST_CASE("each reader has lines of its own, and what is unsaid is said at the end") {
  RecordRig t;
  t.record->Note({RecordRig::Of("pid=7", 1), RecordRig::Of("pid=8", 1)});
  CHECK(t.lines() == 2);
  t.record->Note({RecordRig::Of("pid=8", 5)});
  CHECK(t.lines() == 2);
  t.record.reset();
  CHECK(t.lines() == 3);
  CHECK(t.said("who=\"pid=8\" what=\"tenant b read 5 chunks"));
}

TEST_CASE("of more readers than are kept the others share a record") {
  RecordRig t;
  std::vector<ForeignRead> reads;
  for (size_t i = 0; i < ReadRecord::kMost + 100; ++i) {
    reads.push_back(RecordRig::Of(absl::StrCat("pid=", i), 1));
  }
  t.record->Note(reads);
  CHECK(t.lines() == ReadRecord::kMost + 1);
  CHECK(t.said("who=others what=\"tenant default read 100 chunks"));
}

}  // namespace kvkeep
