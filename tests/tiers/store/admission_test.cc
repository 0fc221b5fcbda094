// Admission to G3: which chunks are written, what they are charged to, and that `simulate` agrees.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"
#include "tiers/policy/simulate.h"

namespace kvkeep {
namespace {

using std::chrono::seconds;

constexpr uint64_t kImage = 2 * kBlockBytes;  // of a chunk of one block

WorldOptions With(const std::string& admission, uint64_t bytes_per_second = 0) {
  WorldOptions options = SmallWorld();
  options.store.g3_admission = admission;
  options.store.g3_write_bytes_per_second = bytes_per_second;
  return options;
}

// Returns which of the first `count` names are in G3, without using any.
std::string InG3(StoreTester& s, uint64_t count) {
  s.Settle();
  std::string names;
  for (uint64_t name = 0; name < count; ++name) {
    if (s.world.index().Find(s.Id(name)).has_value()) names += std::to_string(name);
  }
  return names;
}

}  // namespace

TEST_CASE("with second_use a chunk is written when it is asked for, not when it comes") {
  StoreTester s(With("second_use"));
  for (uint64_t name = 0; name < 4; ++name) REQUIRE(s.Put(name) == "stored");
  CHECK(InG3(s, 4).empty());
  CHECK(s.counters().second_use_refusals == 4);
  CHECK(s.counters().second_use_refused_bytes == 4 * kImage);
  s.Lookup({0}, LeaseMode::kNone);
  s.Touch({2, 9});
  CHECK(InG3(s, 4) == "02");
  const LookupResult leased = s.Lookup({1, 9});
  CHECK(InG3(s, 4) == "012");
  CHECK(s.Get(1, leased.lease) == "hit");
  s.Lookup({0, 1, 2}, LeaseMode::kNone);
  CHECK(s.counters().write_backs == 3);  // each once
  CHECK(s.counters().second_use_refusals == 4);
}

TEST_CASE("what admission did not want is lost with G2, and remembered when it comes again") {
  StoreTester s(With("second_use"));
  REQUIRE(s.Put(0) == "stored");
  s.FloodG2();
  CHECK(s.Get(0) == "miss");
  REQUIRE(s.Put(0) == "stored");
  CHECK(InG3(s, 1) == "0");
}

TEST_CASE("a durable put is written, and one that is to stay out of G3 never is") {
  for (const char* admission : {"second_use", "write_budget"}) {
    StoreTester s(With(admission, 1));
    REQUIRE(s.Put(0, kMiB / 16, {.durable = true}) == "stored");  // more than the budget of an hour
    CHECK(s.Durable(0) == "ok");
    REQUIRE(s.Put(1) == "stored");
    CHECK(s.Durable(1) == "ok");
    REQUIRE(s.Put(2, 4096, {.no_g3 = true}) == "stored");
    for (int i = 0; i < 3; ++i) s.Lookup({2}, LeaseMode::kNone);
    CHECK(InG3(s, 3) == "01");
  }
}

TEST_CASE(
    "a budget of writes is kept over time, and what was not in it is written at a later use") {
  StoreTester s(With("write_budget", 10));  // 36,000 bytes are saved up: four images and a part
  for (uint64_t name = 0; name < 9; ++name) REQUIRE(s.Put(name) == "stored");
  CHECK(InG3(s, 9) == "01234");
  CHECK(s.counters().write_budget_refusals == 4);
  CHECK(s.counters().write_budget_refused_bytes == 4 * kImage);
  s.Lookup({8}, LeaseMode::kNone);
  CHECK(s.counters().write_budget_refusals == 5);
  s.world.clock().Advance(seconds(600));
  s.Lookup({5, 6, 7, 8}, LeaseMode::kNone);  // from the head on
  CHECK(InG3(s, 9) == "012345");
  // A write that must be made is a debt.
  CHECK(s.Durable(6) == "ok");
  s.world.clock().Advance(seconds(800));
  s.Lookup({7}, LeaseMode::kNone);
  CHECK(InG3(s, 9) == "0123456");
  s.world.clock().Advance(seconds(800));
  s.Lookup({7}, LeaseMode::kNone);
  CHECK(InG3(s, 9) == "01234567");
}

TEST_CASE("another budget of writes holds from then on") {
  StoreTester s(With("write_budget", 10));
  for (uint64_t name = 0; name < 9; ++name) REQUIRE(s.Put(name) == "stored");
  REQUIRE(InG3(s, 9) == "01234");
  StoreOptions now = s.store().options();
  now.g3_write_bytes_per_second = 1000;
  REQUIRE(s.store().SetLimits(now).ok());
  s.world.clock().Advance(seconds(60));
  s.Lookup({5, 6, 7, 8}, LeaseMode::kNone);
  CHECK(InG3(s, 9) == "012345678");
  CHECK(s.store().options().g3_write_bytes_per_second == 1000);
}

TEST_CASE("a tenant that writes all the time takes its own part of the budget and no more") {
  WorldOptions options = With("write_budget", 40);
  options.g2_segment_blocks = 16;
  options.store.tenants = {{.g2_segments = 1}, {.name = "noisy", .g2_segments = 3}};
  StoreTester s(options);
  const SessionToken noisy =
      s.store().OpenSession({.client_name = "noisy", .tenant = TenantId(1)}).value();
  const NamespaceDigest ns =
      s.store().OpenNamespace(noisy, {.model = "m", .tokens_per_chunk = 1}).value();
  for (uint64_t name = 0; name < 40; ++name) {
    absl::StatusOr<ReserveResult> put = s.store().Reserve(
        noisy, {.ns = ns, .key = MakeKey(name), .shape = {.payload_bytes = kBlockBytes}});
    REQUIRE(put.ok());
    const std::vector<std::byte> payload(kBlockBytes);
    put->reservation.Append(payload);
    REQUIRE(put->reservation.Seal({}).ok());
    s.RunAll();
  }
  CHECK(s.counters().write_backs == 14);  // 108,000 bytes
  for (uint64_t name = 0; name < 7; ++name) REQUIRE(s.Put(name) == "stored");
  CHECK(InG3(s, 7) == "01234");
}

TEST_CASE("an admission that is not known, or without its rate, is refused by name") {
  StoreOptions options;
  options.g3_admission = "never";
  CHECK(options.Validate().message() == "g3_admission 'never' is not known");
  options.g3_admission = "write_budget";
  CHECK(options.Validate().message() ==
        "g3_write_bytes_per_second is 0: write_budget needs a rate");
  options.g3_write_bytes_per_second = 1;
  CHECK(options.Validate().ok());
}

namespace {

struct Outcome {
  double hit_percent, written_bytes;
};

// Acts as a worker: looks the prompt up, reads present chunks, puts missing ones.
Outcome Play(const std::vector<TraceRequest>& trace, const WorldOptions& options) {
  StoreTester s(options);
  std::chrono::milliseconds now{0};
  uint64_t asked = 0, leading = 0;
  for (const TraceRequest& request : trace) {
    const std::vector<uint64_t>& ids = request.hash_ids;
    s.world.clock().Advance(request.timestamp - now);
    now = request.timestamp;
    const LookupResult found = s.Lookup(ids, LeaseMode::kNone);
    asked += ids.size();
    leading += found.leading_keys;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (found.g2_parts[i] != 0) continue;
      PutHow how;
      if (i > 0) how.parent = ids[i - 1];
      found.g3_parts[i] != 0 ? s.Get(ids[i]) : s.Put(ids[i], kBlockBytes, how);
      s.RunAll();
    }
  }
  s.store().CheckInvariants();
  return {100 * static_cast<double>(leading) / static_cast<double>(asked),
          static_cast<double>(s.counters().write_backs * kImage)};
}

}  // namespace

TEST_CASE("simulate tells what the store does with each admission", "[figures]") {
  auto trace = ReadTrace("tests/traces/conversation_trace.jsonl");
  REQUIRE(trace.ok());
  trace->resize(600);
  constexpr uint64_t kG2Chunks = 2'000, kRate = 10'000;
  for (const uint64_t g3_chunks : {3'000, 8'000}) {
    for (const std::string& admission : AdmissionPolicyNames()) {
      WorldOptions options = With(admission, kRate);
      options.g2_blocks = options.g2_segment_blocks = 2 * kG2Chunks;
      options.device_blocks = {2 * g3_chunks + 64};  // blocks kept free for writes
      options.store.dirty_budget_bytes = options.store.max_reserved_bytes = 0;
      const Outcome store = Play(*trace, options);
      const auto simulated =
          SimulateTiers(*trace, {.g2_chunks = kG2Chunks,
                                 .g3_chunks = g3_chunks,
                                 .admission = admission,
                                 .admission_options = {.bytes_per_second = kRate},
                                 .chunk_bytes = kImage});
      REQUIRE(simulated.ok());
      CAPTURE(admission, g3_chunks);
      CHECK(store.hit_percent == Approx(100 * simulated->trace.hit_ratio).margin(0.5).epsilon(0));
      CHECK(store.written_bytes ==
            Approx(static_cast<double>(simulated->g3_written_bytes)).epsilon(0.01));
    }
  }
}

}  // namespace kvkeep
