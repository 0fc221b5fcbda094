#include "server/requests/convert.h"

#include <catch2/catch.hpp>

#include "server/grpc/to_grpc.h"
#include "server/life/options.h"

namespace kvkeep {

TEST_CASE("a bitmap has rows of whole bytes, part p at bit p, least significant first") {
  CHECK(ToBitmap({0b101, 0b010}, 3) == std::string("\x05\x02"));
  CHECK(ToBitmap({0x1ff}, 9) == std::string("\xff\x01"));
  CHECK(ToBitmap({1ull << 63}, 64) == std::string("\0\0\0\0\0\0\0\x80", 8));
  CHECK(ToBitmap({}, 5).empty());
}

TEST_CASE("no parts asked for means all of the namespace's, when one call may ask for so many") {
  NamespaceSpec spec;
  spec.parts = 5;
  const std::string key(32, 'k');
  const absl::StatusOr<OwnedChunkSet> all = ParseChunkSet({}, key, {}, spec, 100);
  REQUIRE(all.ok());
  CHECK(all->parts.size() == 5);
  CHECK(all->parts[4] == PartId(4));
  spec.parts = 65;
  const absl::Status status = ParseChunkSet({}, key, {}, spec, 100).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(status.message()).find("all 65") != std::string::npos);
}

TEST_CASE("chunks of a call are counted as keys x parts, exactly up to the limit") {
  NamespaceSpec spec;
  spec.parts = 4;
  const std::string keys(32 * 25, 'k');
  CHECK(ParseChunkSet({}, keys, {}, spec, 100).ok());
  CHECK_FALSE(ParseChunkSet({}, keys, {}, spec, 99).ok());
}

TEST_CASE("a lease mode of a later version is refused, not guessed") {
  CHECK(ParseLeaseMode(v1::LEASE_MODE_ALL_PRESENT).ok());
  CHECK_FALSE(ParseLeaseMode(static_cast<v1::LeaseMode>(9)).ok());
}

TEST_CASE("every status code keeps its meaning; a failed precondition names the incarnation") {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    const grpc::Status grpc = ToGrpc(status, Incarnation(42));
    CHECK(static_cast<int>(grpc.error_code()) == code);
    CHECK((grpc.error_message() == "why") == (code != 9));
  }
  CHECK(ToGrpc(absl::FailedPreconditionError("why"), Incarnation(42)).error_message() ==
        "why (incarnation 42)");
}

TEST_CASE("reject reasons map to the ones of the contract by name") {
  CHECK(ToRejectReason(RejectReason::kNoSpace) == v1::REJECT_REASON_NO_SPACE);
  CHECK(ToRejectReason(RejectReason::kLimit) == v1::REJECT_REASON_LIMIT);
  CHECK(ToRejectReason(RejectReason::kWrongSize) == v1::REJECT_REASON_WRONG_SIZE);
  CHECK(ToRejectReason(RejectReason::kWrongChecksum) == v1::REJECT_REASON_WRONG_CHECKSUM);
  CHECK(ToRejectReason(RejectReason::kDraining) == v1::REJECT_REASON_DRAINING);
  CHECK(ToRejectReason(RejectReason::kNotDurable) == v1::REJECT_REASON_NOT_DURABLE);
  CHECK(ToRejectReason(RejectReason::kNotCopied) == v1::REJECT_REASON_NOT_COPIED);
}

TEST_CASE("a TCP address has a host and a port that clients can be told") {
  for (const char* good : {"127.0.0.1:9000", "0.0.0.0:1", "localhost:65535", "[::1]:9000"}) {
    INFO(good);
    CHECK(CheckTcpAddress(good).ok());
  }
  for (const char* bad : {"127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", ":9000", ""}) {
    INFO(bad);
    const absl::Status status = CheckTcpAddress(bad);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find("listen.tcp") != std::string::npos);
  }
}

TEST_CASE("the config's shares become bytes") {
  Config config;
  config.g2.capacity_bytes = 1000 * kMiB;
  const absl::StatusOr<DaemonOptions> options = ToDaemonOptions(config);
  INFO(options.status());
  REQUIRE(options.ok());
  CHECK(options->storage.store.dirty_budget_bytes == 250 * kMiB);
  CHECK(options->storage.store.max_leased_bytes == 500 * kMiB);
}

}  // namespace kvkeep
