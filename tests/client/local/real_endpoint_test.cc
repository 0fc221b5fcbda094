// The client against the daemon's own endpoint and store, in one process: both ends mean the same
// by the protocol. G2 only; tests/e2e has the whole daemon.
#include <catch2/catch.hpp>
#include <thread>

#include "client/local/local_transport.h"
#include "server/local/endpoint.h"
#include "tests/client/local/blocking.h"
#include "tests/fakes/scratch_dir.h"
#include "tiers/base/random.h"

namespace kvkeep::client {
namespace {

struct RealEndpoint {
  using Edit = std::function<void(RealEndpoint*)>;
  explicit RealEndpoint(const Edit& edit) {
    options.listeners.push_back({.socket = {.path = dir / "local.sock", .mode = 0600}});
    options.version = "1.2.3";
    options.limits.max_all_staging_bytes = 64 * kMiB;
    options.limits.default_staging_bytes = 8 * kMiB;
    if (edit) edit(this);
    auto made = CreateArena({.capacity_bytes = 128 * kMiB,
                             .segment_bytes = 32 * kMiB,
                             .backing = ArenaBacking::kMemfd,
                             .prefault = false},
                            copy_pool.get());
    REQUIRE(made.ok());
    arena = *std::move(made);
    auto opened = Store::Create(store_options, {.clock = RealClock(),
                                                .random = RealRandom(),
                                                .arena = arena.get(),
                                                .copy_executor = copy_pool.get()});
    REQUIRE(opened.ok());
    store = *std::move(opened);
    Start();
  }
  ~RealEndpoint() {
    endpoint.reset();
    CHECK(Eventually([this] { return counters.puts_copying == 0 && counters.staging_bytes == 0; }));
    store.reset();
  }
  void Start() {
    auto started = LocalEndpoint::Start(options, {.store = store.get(),
                                                  .arena = arena.get(),
                                                  .copy_executor = copy_pool.get(),
                                                  .counters = &counters,
                                                  .clock = RealClock(),
                                                  .serving_state = [] { return 2u; }});
    REQUIRE(started.ok());
    endpoint = *std::move(started);
  }

  std::string path() const { return options.listeners[0].socket.path; }

  const ScratchDir dir;
  kvkeep::LocalCounters counters;
  LocalEndpoint::Options options;
  StoreOptions store_options{.max_chunks = 10'000};
  std::unique_ptr<ThreadPool> copy_pool = std::make_unique<ThreadPool>("copy", 2);
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Store> store;
  std::unique_ptr<LocalEndpoint> endpoint;
};

struct RealFixture : RealEndpoint, Blocking {
  explicit RealFixture(const Edit& edit = {}) : RealEndpoint(edit), Blocking(path()) {}
  uint64_t leased_bytes() const { return store->snapshot().g2.leased_bytes; }
};

}  // namespace

TEST_CASE("the daemon's endpoint: a reader gets the owner's chunks in place, and its own too") {
  std::string readers;
  RealEndpoint e([&](RealEndpoint* e) {
    e->store_options.tenants = {{.name = "", .g2_segments = 1},
                                {.name = "owner", .g2_segments = 2, .readers = {TenantId(2)}},
                                {.name = "reader", .g2_segments = 1}};
    LocalEndpoint::ListenerOptions& listener = e->options.listeners[0];
    listener.tenant = TenantId(1);
    listener.segments = {.first = 1, .count = 2};
    e->options.listeners.push_back(listener);
    LocalEndpoint::ListenerOptions& other = e->options.listeners[1];
    readers = other.socket.path + "2";
    other.socket.path = readers;
    other.tenant = TenantId(2);
    other.segments = {.first = 3, .count = 1};
    other.shared = {{.first = 1, .count = 2}};
  });
  Blocking owner(e.path()), reader(readers);
  const auto payload = Bytes(3'000'000, 1), mine = Bytes(500'000, 2);
  const ChunkKey key = Key("k");
  REQUIRE(owner.PutOne(key, payload) == PutStatus::kStored);
  REQUIRE(reader.PutOne(key, mine) == PutStatus::kStored);
  NamespaceSpec spec = reader.spec;
  spec.tenant = "owner";
  const auto own = reader.ns;
  const auto opened = reader.transport->OpenNamespace(spec, Deadline(0));
  REQUIRE(opened.ok());
  reader.ns = *opened;
  CHECK(reader.GetOne(key) == GetStatus::kHit);
  CHECK(reader.back == payload);
  CHECK(reader.PutOne(Key("l"), mine) == PutStatus::kUnfinished);
  CHECK(absl::IsPermissionDenied(reader.last));
  CHECK(absl::IsPermissionDenied(reader.Delete({&key, 1}).status()));
  reader.ns = own;
  CHECK(reader.GetOne(key) == GetStatus::kHit);
  CHECK(reader.back == mine);
  spec.tenant = "reader";
  CHECK(absl::IsPermissionDenied(owner.transport->OpenNamespace(spec, Deadline(0)).status()));
}

TEST_CASE("the daemon's endpoint: what was put is found, read in place, got, and deleted") {
  RealFixture f;
  std::vector<ChunkKey> keys;
  std::vector<std::vector<std::byte>> payloads;
  std::vector<PutChunk> chunks;
  for (uint64_t i = 0; i < 12; ++i) {
    keys.push_back(Key(absl::StrCat("k", i)));
    payloads.push_back(Bytes(i == 0 ? 1 : i * 500'000, i));
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    chunks.push_back({.key = keys[i], .runs = {payloads[i]}, .metadata = absl::StrCat("tail ", i)});
  }
  auto put = f.Put(chunks, {.checksum = true});
  REQUIRE(put.ok());
  REQUIRE(put->error.ok());
  for (const PutOutcome& outcome : put->chunks) CHECK(outcome.status == PutStatus::kStored);
  put = f.Put({chunks[3]});
  REQUIRE(put.ok());
  CHECK(put->chunks[0].status == PutStatus::kPresent);

  auto acquired = f.Acquire(keys);
  REQUIRE(acquired.ok());
  REQUIRE(acquired->chunks.size() == keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    CHECK(acquired->Verify(i));
    size_t at = 0;
    for (const auto run : acquired->chunks[i].runs) {
      CHECK(std::equal(run.begin(), run.end(), payloads[i].begin() + static_cast<long>(at)));
      at += run.size();
    }
    CHECK(at == payloads[i].size());
  }
  CHECK(acquired->valid());
  CHECK(f.leased_bytes() > 0);
  acquired = Acquired();
  CHECK(Eventually([&] { return f.leased_bytes() == 0; }));

  auto found = f.Lookup(keys, {.lease = LeaseMode::kLeadingRun});
  REQUIRE(found.ok());
  CHECK(found->leased_keys == keys.size());
  CHECK(*f.Delete({keys[5]}) == 1);
  CHECK(f.GetOne(keys[5], {.lease = &found->lease, .first_key = 5, .metadata = true}) ==
        GetStatus::kHit);
  CHECK(f.back == payloads[5]);
  CHECK(f.outcome.metadata == "tail 5");
  REQUIRE(f.Release(std::move(found->lease)).ok());
  CHECK(f.leased_bytes() == 0);
  CHECK(f.GetOne(keys[5]) == GetStatus::kMiss);
  CHECK(f.GetOne(keys[11]) == GetStatus::kHit);
  CHECK(f.back == payloads[11]);
  CHECK(f.transport->stats().sessions_opened == 1);
}

TEST_CASE("the daemon's endpoint: staging buffers, registered memory, many messages") {
  RealFixture f;
  auto buffer = f.transport->AllocateStaging(4 * kMiB);
  REQUIRE(buffer.ok());
  const std::vector<std::byte> payload = Bytes(4 * kMiB, 9);
  std::copy(payload.begin(), payload.end(), buffer->memory().begin());
  const std::span<const std::byte> staged = buffer->memory();
  auto put = f.Put({{.key = Key("a"), .runs = {staged.subspan(kMiB), staged.first(kMiB)}}});
  REQUIRE(put.ok());
  CHECK(put->chunks[0].status == PutStatus::kStored);
  CHECK(f.GetOne(Key("a")) == GetStatus::kHit);
  CHECK(std::equal(f.back.begin(), f.back.begin() + 3 * kMiB, payload.begin() + kMiB));

  UniqueFd fd(memfd_create("test", MFD_CLOEXEC));
  REQUIRE(ftruncate(fd.get(), 4 * kMiB) == 0);
  REQUIRE(pwrite(fd.get(), payload.data(), payload.size(), 0) == 4 * kMiB);
  void* at = mmap(nullptr, 4 * kMiB, PROT_READ, MAP_SHARED, fd.get(), 0);
  {
    auto memory =
        f.transport->RegisterMemory(fd.get(), {static_cast<const std::byte*>(at), 4 * kMiB}, {});
    REQUIRE(memory.ok());
    CHECK(f.PutOne(Key("b"), memory->mapping().subspan(10, 2 * kMiB)) == PutStatus::kStored);
    CHECK(f.GetOne(Key("b")) == GetStatus::kHit);
    CHECK(std::equal(f.back.begin(), f.back.end(), payload.begin() + 10));
  }
  munmap(at, 4 * kMiB);

  // More than the staging memory: 8 MiB, of which 4 are taken.
  std::vector<PutChunk> chunks;
  for (int i = 0; i < 40; ++i) {
    chunks.push_back({.key = Key(absl::StrCat(i)), .runs = {std::span(payload).first(kMiB)}});
  }
  put = f.Put(chunks, {.deadline = Deadline(60'000)});
  REQUIRE(put.ok());
  CHECK(put->error.ok());
  for (const PutOutcome& outcome : put->chunks) CHECK(outcome.status == PutStatus::kStored);
}

TEST_CASE("the daemon's endpoint: memory of a put cut off is in use until it cannot be stored") {
  RealFixture f;
  auto buffer = f.transport->AllocateStaging(4 * kMiB);
  REQUIRE(buffer.ok());
  const bool daemon_stops = GENERATE(false, true);
  // The buffers are the copy threads' too, which may still look at them after they were told.
  const auto copy = std::make_shared<std::atomic<bool>>(false);
  for (int thread = 0; thread < 2; ++thread) {
    f.copy_pool->Post([copy] { copy->wait(false); });
  }
  std::atomic<bool> done{false};
  f.transport->Put(f.ns, f.spec, {{.key = Key("a"), .runs = {buffer->memory()}}}, {},
                   [&](absl::StatusOr<PutResult> put) { done = !put.ok(); });
  REQUIRE(Eventually([&] { return f.store->snapshot().g2.reserved_bytes > 0; }));
  std::thread leaves([&] { daemon_stops ? f.endpoint->Stop() : f.transport.reset(); });
  while (!done || buffer->in_use()) std::this_thread::yield();
  // Already: the copies have not even begun, so nothing of them may be stored.
  CHECK(f.store->snapshot().sessions.empty());
  *copy = true;
  copy->notify_all();
  leaves.join();
  REQUIRE(Eventually([&] { return f.counters.puts_copying == 0; }));
  CHECK(f.store->snapshot().g2.chunks == 0);
  CHECK(f.store->snapshot().g2.reserved_bytes == 0);
}

TEST_CASE("the daemon's endpoint: what it reads after a put's deadline is never stored") {
  RealFixture f;
  const UniqueFd fd(memfd_create("test", MFD_CLOEXEC));
  constexpr size_t kSize = 6 * kMiB;
  REQUIRE(ftruncate(fd.get(), kSize) == 0);
  auto* const at = static_cast<std::byte*>(
      mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  const std::span<std::byte> memory(at, kSize);
  auto registered = f.transport->RegisterMemory(fd.get(), memory, {.reused = true});
  REQUIRE(registered.ok());
  // The copy threads hang for longer than the put's time.
  const auto go_on = std::make_shared<std::atomic<bool>>(false);
  for (int thread = 0; thread < 2; ++thread) {
    f.copy_pool->Post([go_on] { go_on->wait(false); });
  }
  auto put = f.Put({{.key = Key("a"), .runs = {memory}}}, {.deadline = Deadline(300)});
  CHECK(absl::IsDeadlineExceeded(put.status()));
  REQUIRE_FALSE(registered->in_use());
  const std::vector<std::byte> other = Bytes(kSize, 2);
  std::copy(other.begin(), other.end(), memory.begin());  // because it is ours again
  *go_on = true;
  go_on->notify_all();
  CHECK(Eventually([&] { return f.counters.puts_copying == 0; }));
  CHECK(f.GetOne(Key("a")) == GetStatus::kMiss);
  CHECK(f.store->snapshot().g2.reserved_bytes == 0);
  // With enough time it is stored.
  put = f.Put({{.key = Key("a"), .runs = {memory}}});
  REQUIRE(put.ok());
  CHECK(put->chunks[0].status == PutStatus::kStored);
  CHECK(f.GetOne(Key("a")) == GetStatus::kHit);
  CHECK(f.back == other);
  munmap(at, kSize);
}

TEST_CASE("the daemon's endpoint: with little memory of all kinds, puts go in smaller steps") {
  RealFixture f([](RealEndpoint* e) {
    e->options.limits.max_all_staging_bytes = 5 * kMiB;
    e->store_options.max_reserved_bytes = 3 * kMiB;
  });
  Blocking other(f.path());
  const std::vector<std::byte> payload = Bytes(kMiB, 1);
  std::vector<PutChunk> chunks;
  for (int i = 0; i < 12; ++i) chunks.push_back({.key = Key(absl::StrCat(i)), .runs = {payload}});
  for (Blocking* client : {static_cast<Blocking*>(&f), &other}) {
    auto put = client->Put(chunks, {.deadline = Deadline(60'000)});
    REQUIRE(put.ok());
    CHECK(put->error.ok());
    for (const PutOutcome& outcome : put->chunks) {
      INFO(outcome.message);
      CHECK(outcome.status != PutStatus::kRejected);
    }
  }
  // It is larger than what the other session leaves: it goes through the client's own memory.
  CHECK(f.PutOne(Key("large"), Bytes(5 * kMiB / 2, 2)) == PutStatus::kStored);
  CHECK(f.PutOne(Key("too large"), Bytes(4 * kMiB, 2)) == PutStatus::kRejected);
  CHECK(f.message.find("puts in progress") != std::string::npos);
  CHECK(f.PutOne(Key("small"), payload) == PutStatus::kStored);
}

TEST_CASE("the daemon's endpoint: a stop and a start are survived by the client") {
  RealFixture f;
  const std::vector<std::byte> payload = Bytes(100'000, 1);
  REQUIRE(f.PutOne(Key("a"), payload) == PutStatus::kStored);
  auto old = f.Acquire({Key("a")});
  REQUIRE(old.ok());
  const std::byte* const before = old->chunks[0].contiguous().data();
  f.endpoint->Stop();
  CHECK_FALSE(old->valid());
  f.endpoint.reset();
  f.Start();
  REQUIRE(Eventually([&] { return f.transport->stats().sessions_opened == 2; }));
  auto fresh = f.Acquire({Key("a")});
  REQUIRE(fresh.ok());
  CHECK(fresh->chunks[0].contiguous().data() == before);
  CHECK(fresh->Verify(0));
}

TEST_CASE("the daemon's endpoint: several threads at once get what was put") {
  RealFixture f;
  const std::vector<std::byte> payload = Bytes(300'000, 1);
  REQUIRE(f.PutOne(Key("a"), payload) == PutStatus::kStored);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        auto got = f.Acquire({Key("a")});
        wrong += !got.ok() || got->chunks.size() != 1 || !got->Verify(0) || !got->valid();
        auto put = f.Put({{.key = Key(absl::StrCat(t, " ", i)), .runs = {payload}}});
        wrong += !put.ok() || put->chunks[0].status != PutStatus::kStored;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(Eventually([&] { return f.leased_bytes() == 0; }));
}

TEST_CASE("the daemon's endpoint: large chunks of many threads are stored as they were put") {
  // There are 8 MiB of staging memory: a put without room waits, and goes whole or in parts.
  RealFixture f;
  constexpr int kThreads = 4, kRounds = 6;
  std::atomic<int> wrong{0}, stored{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        // Two threads put the same chunks: one of them is answered before it has filled.
        const auto seed = static_cast<uint64_t>(t / 2 * 100 + round);
        const std::vector<std::byte> large = Bytes(4 * kMiB + 1000 * seed, seed);
        const std::vector<std::byte> small = Bytes(300'000, seed + 1000);
        const std::span<const std::byte> all(large);
        const ChunkKey key = Key(absl::StrCat("large ", seed));
        auto put = f.Put({{.key = Key(absl::StrCat("small ", t, " ", round)), .runs = {small}},
                          {.key = key, .runs = {all.first(777), all.subspan(777)}}});
        if (!put.ok() || !put->error.ok()) {
          ++wrong;
          continue;
        }
        stored += put->chunks[1].status == PutStatus::kStored;
        // The target is this thread's memory, as GetOne has one buffer for all.
        std::vector<std::byte> back(large.size());
        std::span<std::byte> to(back);
        auto got = f.Get({&key, 1}, {.verify = true, .destinations = absl::MakeSpan(&to, 1)});
        // It may have been evicted since; bytes that come are right.
        if (!got.ok() || (got->chunks[0].status == GetStatus::kHit && back != large)) ++wrong;
        (void)f.Delete({&key, 1});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(stored >= kRounds);
  CHECK(f.counters.stalled_puts == 0);
  CHECK(f.store->snapshot().g2.reserved_bytes == 0);
}

}  // namespace kvkeep::client
