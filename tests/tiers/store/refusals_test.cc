// Errors that the store returns before it does anything: for options, and for calls of wrong or
// ended sessions. Each error names the field, and its limit if there is one.
#include <catch2/catch.hpp>
#include <utility>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kPrecondition = absl::StatusCode::kFailedPrecondition;

void CheckError(const absl::Status& status, absl::StatusCode code, const std::string& part) {
  INFO(status.ToString());
  CHECK(status.code() == code);
  CHECK(std::string(status.message()).find(part) != std::string::npos);
}

NamespaceSpec GoodSpec() { return {.model = "m", .tokens_per_chunk = 16, .parts = 1}; }

}  // namespace

TEST_CASE("options out of their limits make no store, and the error names the one") {
  const auto refused = [](void (*change)(StoreOptions&), const std::string& part,
                          const KeyRing* keys = nullptr) {
    ManualClock clock;
    ManualExecutor executor;
    SeededRandom random(1);
    MemoryArena arena(BlockCount(64), BlockCount(64));
    StoreOptions options;
    options.max_chunks = 64;
    change(options);
    const auto store = Store::Create(options, {.clock = &clock,
                                               .random = &random,
                                               .arena = &arena,
                                               .copy_executor = &executor,
                                               .keys = keys});
    CheckError(store.status(), kInvalid, part);
  };
  refused([](StoreOptions& o) { o.g2_policy = "luck"; }, "policy 'luck'");
  refused([](StoreOptions& o) { o.max_chunks = 0; }, "max_chunks is 0");
  refused([](StoreOptions& o) { o.max_sessions = 0; }, "max_sessions");
  refused([](StoreOptions& o) { o.events.max_readers = 0; }, "events.max_readers");
  refused([](StoreOptions& o) { o.g3_capacity_bytes = {kMiB}; }, "has 1 entries");
  refused([](StoreOptions& o) { o.tenants = {{.name = "a"}}; }, "tenant 'a' has no segment");
  refused(
      [](StoreOptions& o) {
        o.tenants = {{.name = "a", .g2_segments = 1}, {.name = "b", .g2_segments = 1}};
      },
      "more than the 1");
  refused(
      [](StoreOptions& o) {
        o.tenants = {{.name = "a", .g2_segments = 1}, {.name = "a", .g2_segments = 1}};
      },
      "the same name");
  refused(
      [](StoreOptions& o) {
        o.tenants = {{.name = "a", .g2_segments = 1, .readers = {TenantId(1)}}};
      },
      "tenant 'a' has reader 1");
  SeededRandom random(2);
  const auto keys = KeyRing::InMemory({"other"}, &random);
  refused([](StoreOptions&) {}, "has no key", keys.get());
}

TEST_CASE(
    "a device whose index cannot be read makes no store, and nothing of it comes back later") {
  ManualClock clock;
  ManualExecutor executor;
  SeededRandom random(1);
  MemoryArena arena(BlockCount(64), BlockCount(64));
  MemoryIndex index;
  MemoryDevice disk(64 * kBlockBytes, &executor);
  MemoryNvmeDevice device(&disk, &index, 1);
  const auto create = [&] {
    StoreOptions options;
    options.max_chunks = 64;
    StoreDeps deps{.clock = &clock, .random = &random, .arena = &arena, .copy_executor = &executor};
    deps.devices.push_back(
        {.device = &device, .index_executor = &executor, .sync_executor = &executor});
    return Store::Create(options, deps).status();
  };
  bool refused = false, made = false, unlearned = false;
  // Each of the few reads of a start fails once.
  for (uint64_t seed = 1; seed < 200; ++seed) {
    index.Reseed(seed);
    index.SetFaults({.read_error = 0.3});
    const uint64_t failed_before = index.counted().errors;
    const absl::Status status = create();
    executor.RunAll();
    // A start goes on only without the policies' learned state.
    unlearned |= status.ok() && index.counted().errors > failed_before;
    (status.ok() ? made : refused) = true;
    if (!status.ok()) CheckError(status, absl::StatusCode::kDataLoss, "read failed");
  }
  CHECK(refused);
  CHECK(made);
  CHECK(unlearned);
}

TEST_CASE("a namespace out of its limits is refused, and the error names the field") {
  StoreTester t;
  const auto refused = [&t](void (*change)(NamespaceSpec&), const std::string& part) {
    NamespaceSpec spec = GoodSpec();
    change(spec);
    CheckError(t.store().OpenNamespace(t.session, spec).status(), kInvalid, part);
  };
  refused([](NamespaceSpec& s) { s.model.clear(); }, "model is empty");
  refused([](NamespaceSpec& s) { s.model.assign(257, 'm'); }, "model is 257 bytes");
  refused([](NamespaceSpec& s) { s.hash_seed.assign(65, 's'); }, "hash_seed is 65 bytes");
  refused([](NamespaceSpec& s) { s.tokens_per_chunk = 0; }, "tokens_per_chunk is 0");
  refused([](NamespaceSpec& s) { s.parts = 65'537; }, "parts is 65537");
  refused([](NamespaceSpec& s) { s.bytes_per_part = kMaxPayloadBytes + 1; }, "bytes_per_part is");
}

TEST_CASE("a session has 256 namespaces at most, and those that it has it may open again") {
  StoreTester t;
  NamespaceSpec spec = GoodSpec();
  absl::Status last;
  int opened = 0;
  for (; last.ok() && opened < 300; ++opened) {
    spec.model = "m" + std::to_string(opened);
    last = t.store().OpenNamespace(t.session, spec).status();
  }
  CHECK(opened == 256);  // StoreTester has one open, and the last attempt failed
  CheckError(last, absl::StatusCode::kResourceExhausted, "256");
  spec.model = "m0";
  CHECK(t.store().OpenNamespace(t.session, spec).ok());
}

TEST_CASE("a session that is gone is refused by every call") {
  StoreTester t;
  const std::vector<ChunkKey> keys = {MakeKey(1)};
  const std::vector<PartId> parts = {PartId(0)};
  const ChunkSet chunks{t.ns, keys, parts};
  const SessionToken gone = t.session;
  t.store().CloseSession(gone);
  Store& store = t.store();
  for (const absl::Status& status :
       {store.OpenNamespace(gone, GoodSpec()).status(), store.FindNamespace(gone, t.ns).status(),
        store.Lookup(gone, {.chunks = chunks}).status(), store.Touch(gone, chunks).status(),
        store.Prefetch(gone, chunks).status(), store.Delete(gone, chunks).status(),
        store.Read(gone, t.Id(1), LeaseId(0), false).status(),
        store.Reserve(gone, {.ns = t.ns, .key = keys[0], .shape = {.payload_bytes = 1}}).status(),
        store.Release(gone, LeaseId(1), 0), store.TenantOf(gone).status(),
        store.ChargeDiscarded(gone, 1, /*within_rate=*/true)}) {
    CheckError(status, kPrecondition, "session");
  }
}

TEST_CASE(
    "a call in a namespace that the session has not opened, or of too many chunks, is refused") {
  StoreTester t;
  Store& store = t.store();
  const NamespaceDigest other{};
  const std::vector<ChunkKey> keys = {MakeKey(1)};
  std::vector<PartId> parts = {PartId(0)};
  const ChunkSet chunks{other, keys, parts};
  for (const absl::Status& status :
       {store.FindNamespace(t.session, other).status(),
        store.Lookup(t.session, {.chunks = chunks}).status(),
        store.Read(t.session, {other, keys[0], PartId(0)}, LeaseId(0), false).status(),
        store.Reserve(t.session, {.ns = other, .key = keys[0], .shape = {.payload_bytes = 1}})
            .status()}) {
    CheckError(status, kPrecondition, "namespace_digest");
  }
  const ChunkSet none{t.ns, {}, parts};
  CheckError(store.Touch(t.session, none).status(), kInvalid, "keys or parts is empty");
  std::vector<PartId> many(70'000, PartId(0));
  const ChunkSet too_many{t.ns, keys, many};
  CheckError(store.Touch(t.session, too_many).status(), kInvalid, "parts names 70000");
}

namespace {

// Calls that are cut into slices of a chunk each, in a G2 that is full.
WorldOptions Sliced() {
  WorldOptions options = SmallWorld();
  options.hold_work = 1;
  options.store.max_leases_per_session = 4;
  return options;
}

}  // namespace

TEST_CASE("a lookup whose session is closed between two slices gives all back and is refused") {
  bool refused = false;
  for (int at = 1; at < 60; ++at) {
    StoreTester t(Sliced());
    SessionToken session;
    int slices = 0;
    t.world.SetBetweenSlices([&] {
      if (++slices == at) t.store().CloseSession(session);
    });
    t.KillAndStart();
    for (uint64_t i = 0; i < 8; ++i) REQUIRE(t.Put(i) == "stored");
    t.Settle();
    slices = 0;
    session = t.session;
    std::vector<ChunkKey> keys;
    for (uint64_t i = 0; i < 8; ++i) keys.push_back(MakeKey(i));
    const std::vector<PartId> parts = {PartId(0)};
    const absl::Status status = t.store()
                                    .Lookup(session, {.chunks = {t.ns, keys, parts},
                                                      .lease_mode = LeaseMode::kLeadingRun,
                                                      .client_request_id = 5,
                                                      .want_places = true})
                                    .status();
    if (!status.ok()) {
      CheckError(status, kPrecondition, "session");
      refused = true;
    }
    t.store().CheckInvariants();
    t.store().CloseSession(session);
    CHECK(t.store().snapshot().g2.leased_bytes == 0);
  }
  CHECK(refused);
}

TEST_CASE("a lookup that finds the session's leases used up at its end gives all back") {
  StoreTester t(Sliced());
  bool busy = false;
  t.world.SetBetweenSlices([&] {
    if (busy) return;
    busy = true;
    for (int i = 0; i < 4; ++i) t.Lookup({0});
  });
  busy = true;
  t.KillAndStart();
  for (uint64_t i = 0; i < 8; ++i) REQUIRE(t.Put(i) == "stored");
  t.Settle();
  busy = false;
  std::vector<ChunkKey> keys;
  for (uint64_t i = 0; i < 8; ++i) keys.push_back(MakeKey(i));
  const std::vector<PartId> parts = {PartId(0)};
  const absl::Status status =
      t.store()
          .Lookup(t.session, {.chunks = {t.ns, keys, parts}, .lease_mode = LeaseMode::kLeadingRun})
          .status();
  CheckError(status, absl::StatusCode::kResourceExhausted, "leases: this session holds 4");
  t.store().CheckInvariants();
  t.store().CloseSession(t.session);
  CHECK(t.store().snapshot().g2.leased_bytes == 0);
}

TEST_CASE("a read whose session is closed while it looks through a lease is refused") {
  StoreTester t(Sliced());
  bool close = false;
  t.world.SetBetweenSlices([&] {
    if (std::exchange(close, false)) t.store().CloseSession(t.session);
  });
  t.KillAndStart();
  for (uint64_t i = 0; i < 8; ++i) REQUIRE(t.Put(i) == "stored");
  t.Settle();
  const LookupResult leased = t.Lookup({0, 1, 2, 3, 4, 5, 6, 7});
  REQUIRE(leased.leased_keys == 8);
  close = true;
  // Not in the lease, and nowhere else.
  const auto read = t.store().Read(t.session, t.Id(99), leased.lease, false);
  CHECK_FALSE(close);
  CheckError(read.status(), kPrecondition, "session");
  t.store().CheckInvariants();
}

TEST_CASE("a put whose session is closed while it makes room is refused, and keeps no space") {
  StoreTester t(Sliced());
  SessionToken session;
  bool close = false;
  t.world.SetBetweenSlices([&] {
    if (std::exchange(close, false)) t.store().CloseSession(session);
  });
  t.KillAndStart();
  t.FloodG2();
  session = t.session;
  close = true;
  const absl::StatusOr<ReserveResult> put = t.store().Reserve(
      session, {.ns = t.ns, .key = MakeKey(1), .shape = {.payload_bytes = 20 * kBlockBytes}});
  CheckError(put.status(), kPrecondition, "session");
  CHECK_FALSE(close);
  CHECK(t.store().snapshot().g2.reserved_bytes == 0);
  t.store().CheckInvariants();
}

}  // namespace kvkeep
