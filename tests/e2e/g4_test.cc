// G4 with real daemons, one after the other: the next one finds what one put, and has nothing of
// the first but the fleet's key and the place that both share.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/e2e/g4_place.h"
#include "tests/e2e/shell.h"

namespace kvkeep::e2e {
namespace {

namespace fs = std::filesystem;

constexpr size_t kG4ChunkBytes = 300'000;
constexpr std::chrono::seconds kLongWait{5};     // of a search
constexpr std::chrono::seconds kG4Patience{60};  // with a busy machine

// The directory and the key that the daemons of a fleet share.
struct SharedPlace {
  SharedPlace() {
    MakeG4Directory(objects(), "tests");
    WriteKey("key", '1');
    WriteKey("other", '2');
  }
  std::string objects() const { return dir / "objects"; }
  void WriteKey(const std::string& name, char digit) const {
    WriteForOwner(dir.path() + "/" + name, FleetKeyOf(digit));
  }
  std::string Config(const std::string& key = "key") const {
    return absl::StrCat("g4: {url: \"file://", objects(), "\", write_bytes_per_second: 1GiB, admission: all}\n",
                        "fleet: {name: tests, key_file: ", dir.path() + "/" + key, "}\n");
  }
  size_t count() const {
    size_t files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(objects())) {
      files += IsObject(entry);
    }
    return files;
  }
  // An object that is being written lies below .new until it is whole. The directory's mark is
  // hidden, too.
  static bool IsObject(const fs::directory_entry& entry) {
    return entry.is_regular_file() && entry.path().string().find("/.") == std::string::npos;
  }
  // Returns whether some file there has these bytes, or its path does.
  bool Shows(const std::string& bytes) const {
    for (const auto& entry : fs::recursive_directory_iterator(objects())) {
      if (entry.path().string().find(bytes) != std::string::npos) return true;
      if (!entry.is_regular_file()) continue;
      if (ReadFile(entry.path()).find(bytes) != std::string::npos) return true;
    }
    return false;
  }

  ScratchDir dir;
};

struct G4Node {
  explicit G4Node(const std::string& config)
      : site({.g2 = "64MiB", .segment_bytes = "16MiB", .devices = {{.capacity = "96MiB"}},
              .local = true}) {
    site.settings.extra = config;
    site.Start();
    engine = std::make_unique<Engine>(site);
  }
  // Looks them up until as many are found as are there.
  size_t Recall(const std::vector<TestChunk>& chunks, size_t expected,
                milliseconds wait = milliseconds(60'000)) {
    const auto begun = engine->client().Prefetch(engine->ns(), KeysOf(chunks));
    REQUIRE(begun.ok());
    Eventually([&] { return engine->Find(chunks).any >= expected; }, wait);
    return engine->Find(chunks).any;
  }
  Site site;
  std::unique_ptr<Engine> engine;
};

// A node puts them and ends; its directories go with it.
void PutByAnotherNode(const SharedPlace& shared, const std::vector<TestChunk>& chunks) {
  G4Node node(shared.Config());
  REQUIRE(node.engine->PutAll(chunks));
  CHECK(Eventually([&] { return shared.count() == chunks.size(); }));
  CHECK(node.site.Stop().exit_status == 0);
}

// A node of tenants a and b; `of_a`: more settings of a.
struct TwoTenants {
  TwoTenants(const SharedPlace& shared, const std::string& of_a)
      : site({.g2 = "64MiB", .segment_bytes = "16MiB"}) {
    site.settings.extra =
        absl::StrCat(shared.Config(), "tenants:\n", Tenant("a", of_a), Tenant("b", ""));
    site.Start();
    a = Connect("a");
    b = Connect("b");
  }
  std::string Tenant(const std::string& name, const std::string& more) const {
    return absl::StrCat("  - {name: ", name, ", unix: ", site.path(name + "/kvkeep.sock"),
                        ", g2_share: 25%", more, "}\n");
  }
  std::unique_ptr<Engine> Connect(const std::string& tenant) const {
    return std::make_unique<Engine>("unix://" + site.path(tenant + "/kvkeep.sock"),
                                    Engine::Options{.name = tenant});
  }
  Site site;
  std::unique_ptr<Engine> a, b;
};

std::string Text(const std::vector<std::byte>& bytes, size_t at, size_t count) {
  return {reinterpret_cast<const char*>(bytes.data()) + at, count};
}

}  // namespace

TEST_CASE("what a daemon put is there for another one of its fleet, byte for byte") {
  const SharedPlace shared;
  const std::vector<TestChunk> chunks = Chunks(1, 24, kG4ChunkBytes);
  PutByAnotherNode(shared, chunks);
  G4Node second(shared.Config());
  CHECK(second.engine->Find(chunks).any == 0);
  CHECK(second.Recall(chunks, chunks.size()) == chunks.size());
  CHECK(second.engine->Hits(chunks) == chunks.size());
  CHECK(second.engine->wrong_bytes == 0);
  // Chunks that are not there are misses, and stay so.
  CHECK(second.Recall(Chunks(1'000, 4, kG4ChunkBytes), 1, kLongWait) == 0);
  CHECK(second.site.Stop().exit_status == 0);
}

TEST_CASE("a lookup that asks leases what another daemon put, and its gets have all bytes") {
  const SharedPlace shared;
  const std::vector<TestChunk> chunks = Chunks(1, 24, kG4ChunkBytes);
  PutByAnotherNode(shared, chunks);
  const client::PathChoice path = GENERATE(client::PathChoice::kLocal, client::PathChoice::kGrpc);
  CAPTURE(static_cast<int>(path));
  G4Node second(shared.Config());
  Engine engine(second.site, {.path = path});
  const std::vector<ChunkKey> keys = KeysOf(chunks);
  const client::LookupOptions asks{.lease = client::LeaseMode::kLeadingRun,
                                   .remote_wait = std::chrono::seconds(5)};
  const auto found = engine.client().Lookup(engine.ns(), keys, asks);
  REQUIRE(found.ok());
  CHECK(found->remote_asked);
  CHECK(found->leading_keys + found->remote_keys == chunks.size());
  CHECK(found->leased_keys == chunks.size());
  for (uint32_t i = 0; i < chunks.size(); ++i) {
    CHECK((found->present(i) || found->coming(i)));
    CHECK(engine.Get(chunks[i], &found->lease, i) == client::GetStatus::kHit);
  }
  CHECK(engine.wrong_bytes == 0);
  // Everything is here, so no bucket is asked. Chunks that are nowhere are asked for once.
  const auto here = engine.client().Lookup(engine.ns(), keys, asks);
  REQUIRE(here.ok());
  CHECK_FALSE(here->remote_asked);
  CHECK(here->leading_keys == chunks.size());
  const auto nowhere =
      engine.client().Lookup(engine.ns(), KeysOf(Chunks(1'000, 24, kG4ChunkBytes)), asks);
  REQUIRE(nowhere.ok());
  CHECK(nowhere->remote_asked);
  CHECK(nowhere->remote_keys == 0);
  CHECK(nowhere->lease.keys() == 0);
  const auto too_long = engine.client().Lookup(
      engine.ns(), keys, {.remote_wait = std::chrono::seconds(11)});
  CHECK_THAT(std::string(too_long.status().message()), Catch::Contains("remote_wait_us"));
}

TEST_CASE("a get by itself has what another daemon put, however few, unless it asks nobody") {
  const SharedPlace shared;
  const std::vector<TestChunk> chunks = Chunks(1, 40, kG4ChunkBytes);
  PutByAnotherNode(shared, chunks);
  const client::PathChoice path = GENERATE(client::PathChoice::kLocal, client::PathChoice::kGrpc);
  CAPTURE(static_cast<int>(path));
  G4Node second(shared.Config());
  Engine engine(second.site, {.path = path});
  const auto get = [&](const std::vector<TestChunk>& some, std::chrono::microseconds wait) {
    std::vector<std::vector<std::byte>> got(some.size());
    const auto result = engine.client().Get(engine.ns(), KeysOf(some),
                                            {.remote_wait = wait,
                                             .allocate = [&](size_t at, uint64_t bytes) {
                                               got[at].resize(bytes);
                                               return std::span<std::byte>(got[at]);
                                             }});
    REQUIRE(result.ok());
    CHECK(result->error.ok());
    size_t hits = 0;
    for (size_t i = 0; i < some.size(); ++i) {
      hits += result->chunks[i].status == client::GetStatus::kHit && got[i] == Payload(some[i]);
    }
    return hits;
  };
  const std::vector<TestChunk> one = {chunks[20]};
  CHECK(get(one, std::chrono::microseconds(0)) == 0);
  CHECK(Eventually([&] { return get(one, kLongWait) == 1; }, kG4Patience));
  CHECK(get(one, std::chrono::microseconds(0)) == 1);  // it has come
  CHECK(Eventually([&] { return get(chunks, kLongWait) == chunks.size(); }, kG4Patience));
  CHECK(get(Chunks(1'000, 2, kG4ChunkBytes), kLongWait) == 0);
}

TEST_CASE("the tool finds what another daemon put, and gets it") {
  const SharedPlace shared;
  const std::string file = shared.dir.path() + "/file";
  WriteFile(file, std::string(kG4ChunkBytes, 'k'));
  const auto tool = [](const G4Node& node, const std::string& verb) {
    const Outcome said = RunShell(absl::StrCat("'" KVKEEP_PATH "' --endpoint ",
                                               node.site.endpoint(), " --admin unix://",
                                               node.site.admin_socket(), " ", verb));
    INFO(verb << ": " << said.output);
    return said;
  };
  {
    G4Node first(shared.Config());
    REQUIRE(tool(first, "put key " + file).status == 0);
    REQUIRE(tool(first, "drain --g4").status == 0);
  }
  G4Node second(shared.Config());
  CHECK(tool(second, "lookup key --remote-wait 0").status == 3);
  CHECK(tool(second, "get key -o " + file + ".back --remote-wait 0").status == 3);
  const Outcome found = tool(second, "lookup key nothing --remote-wait 2s");
  CHECK(found.status == 0);
  CHECK_THAT(found.output, Catch::Contains("G4"));
  CHECK_THAT(found.output, Catch::Contains(" yes"));
  G4Node third(shared.Config());  // where no lookup has brought it
  CHECK(tool(third, "get key -o " + file + ".back --remote-wait 10s --timeout 30s").status == 0);
  CHECK(ReadFile(file + ".back") == ReadFile(file));
}

TEST_CASE("what lies beyond the node shows no payload, key, digest or model") {
  const SharedPlace shared;
  const std::vector<TestChunk> chunks = Chunks(1, 4, kG4ChunkBytes);
  G4Node node(shared.Config());
  const std::string model = "a model that nobody is told of";
  Engine engine(node.site, {.spec = {.model = model, .tokens_per_chunk = 256}});
  REQUIRE(engine.PutAll(chunks));
  CHECK(Eventually([&] { return shared.count() == chunks.size(); }));
  for (const TestChunk& chunk : chunks) {
    const std::vector<std::byte> payload = Payload(chunk);
    for (const size_t at : {size_t{0}, size_t{4096}, payload.size() - 32}) {
      CHECK_FALSE(shared.Shows(Text(payload, at, 32)));
    }
    const ChunkKey key = Key(chunk.number);
    CHECK_FALSE(shared.Shows(std::string(reinterpret_cast<const char*>(key.bytes.data()), 16)));
  }
  CHECK_FALSE(shared.Shows(model));
}

TEST_CASE("with another fleet's key nothing is found, and nothing is taken away") {
  const SharedPlace shared;
  const std::vector<TestChunk> chunks = Chunks(1, 8, kG4ChunkBytes);
  {
    G4Node first(shared.Config());
    REQUIRE(first.engine->PutAll(chunks));
    CHECK(Eventually([&] { return shared.count() == chunks.size(); }));
  }
  {
    G4Node stranger(shared.Config("other"));
    CHECK(stranger.Recall(chunks, 1, kLongWait) == 0);
  }
  G4Node again(shared.Config());
  CHECK(again.Recall(chunks, chunks.size()) == chunks.size());
  CHECK(again.engine->Hits(chunks) == chunks.size());
}

TEST_CASE("a tenant's chunks are there for nodes with its key, and unreadable once that is gone") {
  const SharedPlace shared;
  shared.WriteKey("key-a", '3');
  const std::string key_a = absl::StrCat(", g4_key_file: ", shared.dir.path(), "/key-a");
  const std::vector<TestChunk> of_a = Chunks(1, 8, kG4ChunkBytes);
  const std::vector<TestChunk> of_b = Chunks(100, 8, kG4ChunkBytes);
  {
    const TwoTenants first(shared, key_a);
    REQUIRE(first.a->PutAll(of_a));
    REQUIRE(first.b->PutAll(of_b));
    CHECK(Eventually([&] { return shared.count() == of_a.size() + of_b.size(); }));
  }
  {
    const TwoTenants second(shared, key_a);
    CHECK(RecallsAll(*second.a, of_a));
    CHECK(second.a->wrong_bytes == 0);
  }
  {
    // The key is dropped: the fleet's key alone finds b's chunks, and no more.
    fs::remove(shared.dir.path() + "/key-a");
    const TwoTenants third(shared, "");
    CHECK(RecallLeading(*third.a, of_a, kLongWait) == 0);
    CHECK(RecallsAll(*third.b, of_b));
    CHECK(third.a->wrong_bytes + third.b->wrong_bytes == 0);
  }
  CHECK(shared.count() == of_a.size() + of_b.size());  // a node that cannot read them deletes none
  // The objects are whole: with the key again they are found.
  shared.WriteKey("key-a", '3');
  const TwoTenants fourth(shared, key_a);
  CHECK(RecallsAll(*fourth.a, of_a));
}

TEST_CASE("after another key of the fleet what was put before is there while that one is named") {
  const SharedPlace shared;
  const std::vector<TestChunk> before = Chunks(1, 24, kG4ChunkBytes);
  const std::vector<TestChunk> after = Chunks(100, 8, kG4ChunkBytes);
  {
    G4Node old(shared.Config("key"));
    REQUIRE(old.engine->PutAll(before));
    CHECK(Eventually([&] { return shared.count() == before.size(); }));
  }
  const std::string rotated = absl::StrReplaceAll(
      shared.Config("other"),
      {{"fleet: {", absl::StrCat("fleet: {previous_key_files: [", shared.dir.path(), "/key], ")}});
  {
    G4Node node(rotated);
    CHECK(RecallsAll(*node.engine, before));
    CHECK(node.engine->wrong_bytes == 0);
    CHECK(node.site.Status().counters().at("g4_previous_key_chunks") >= before.size());
    REQUIRE(node.engine->PutAll(after));
    CHECK(Eventually([&] { return shared.count() == before.size() + after.size(); }));
  }
  G4Node node(shared.Config("other"));
  CHECK(RecallLeading(*node.engine, before, kLongWait) == 0);
  CHECK(RecallsAll(*node.engine, after));
}

TEST_CASE("what is flipped or cut off beyond the node is a miss, never wrong bytes") {
  const SharedPlace shared;
  const std::vector<TestChunk> chunks = Chunks(1, 12, kG4ChunkBytes);
  {
    G4Node first(shared.Config());
    REQUIRE(first.engine->PutAll(chunks));
    CHECK(Eventually([&] { return shared.count() == chunks.size(); }));
  }
  size_t number = 0;
  for (const auto& entry : fs::recursive_directory_iterator(shared.objects())) {
    if (!SharedPlace::IsObject(entry) || ++number > 8) continue;
    std::string bytes = ReadFile(entry.path());
    if (number % 2 == 0) {
      bytes.resize(bytes.size() / 2);
    } else {
      bytes[number * 1'000] ^= 4;
    }
    WriteFile(entry.path(), bytes);
  }
  G4Node second(shared.Config());
  CHECK(second.Recall(chunks, chunks.size() - 8) == chunks.size() - 8);
  CHECK(second.engine->Hits(chunks) == chunks.size() - 8);
  CHECK(second.engine->wrong_bytes == 0);
}

TEST_CASE("drain --g4 ends when all that was put is beyond the node") {
  const SharedPlace shared;
  const std::vector<TestChunk> chunks = Chunks(1, 24, kG4ChunkBytes);
  G4Node node(absl::StrReplaceAll(shared.Config(), {{"1GiB", "4MiB"}}));
  REQUIRE(node.engine->PutAll(chunks));
  const Outcome drained = RunShell(absl::StrCat(
      "'" KVKEEP_PATH "' --admin unix://", node.site.admin_socket(), " --timeout 60s drain --g4"));
  INFO(drained.output);
  CHECK(drained.status == 0);
  CHECK_THAT(drained.output, Catch::Contains("0 chunks not written to G4"));
  CHECK(shared.count() == chunks.size());
  CHECK(node.site.Status().state() == v1::SERVING_STATE_DRAINING);
}

TEST_CASE("drain --g4 ends the puts that go on, and all that were taken are beyond the node") {
  const SharedPlace shared;
  G4Node node(absl::StrReplaceAll(shared.Config(), {{"1GiB", "4MiB"}}));
  std::atomic<size_t> taken{0};
  std::thread putting([&] {
    for (uint64_t number = 1;; ++number) {
      const TestChunk chunk = Chunks(number, 1, kG4ChunkBytes)[0];
      if (node.engine->Put(chunk).status != client::PutStatus::kStored) return;
      ++taken;
      std::this_thread::sleep_for(milliseconds(20));  // several times as fast as G4 takes them
    }
  });
  CHECK(Eventually([&] { return taken >= 10; }));
  const Outcome drained = RunShell(absl::StrCat(
      "'" KVKEEP_PATH "' --admin unix://", node.site.admin_socket(), " --timeout 60s drain --g4"));
  putting.join();
  INFO(drained.output);
  CHECK(drained.status == 0);
  CHECK(shared.count() == taken);
}

TEST_CASE("a start says what is wrong with G4's configuration") {
  const SharedPlace shared;
  const auto said = [](const std::string& config) {
    Site site({.segment_bytes = "16MiB"});
    site.settings.extra = config;
    const Ending ending = site.StartAndAwaitEnd();
    CHECK(ending.exit_status != 0);
    return ending.err;
  };
  CHECK_THAT(said("g4: {url: \"file:///tmp\"}\n"), Catch::Contains("needs fleet.name"));
  CHECK_THAT(said("g4: {url: \"s3://bucket\"}\n"), Catch::Contains("is not where G4 is"));
  CHECK_THAT(said(absl::StrCat("g4: {url: \"file://", shared.objects(), "\"}\n",
                               "fleet: {name: a, key_file: /nonexistent/key}\n")),
             Catch::Contains("fleet.key_file"));
  // Bad keys: a missing one, one of the wrong size, one that others can read, the same one twice.
  const auto said_of = [&](const std::string& fleet, const std::string& tenant) {
    return said(absl::StrCat(
        "g4: {url: \"file://", shared.objects(), "\"}\n",
        "fleet: {name: a, key_file: ", shared.dir.path(), "/key", fleet, "}\n",
        "tenants: [{name: t, unix: ", shared.dir.path(), "/t/s, g2_share: 50%", tenant, "}]\n"));
  };
  const auto file = [&](const char* name) { return shared.dir.path() + "/" + name; };
  WriteForOwner(file("short"), "too short");
  WriteFile(file("open"), FleetKeyOf('4'));
  REQUIRE(chmod(file("open").c_str(), 0644) == 0);
  for (const char* name : {"absent", "short", "open", "key"}) {
    CAPTURE(name);
    const bool same = std::string(name) == "key";
    const std::string previous =
        said_of(absl::StrCat(", previous_key_files: [", file(name), "]"), "");
    CHECK_THAT(previous, Catch::Contains("fleet.previous_key_files"));
    CHECK_THAT(previous, Catch::Contains(same ? "has the same key as fleet.key_file" : file(name)));
    const std::string own = said_of("", absl::StrCat(", g4_key_file: ", file(name)));
    CHECK_THAT(own, Catch::Contains("g4_key_file of"));
    CHECK_THAT(own, Catch::Contains(same ? "has the same key as fleet.key_file" : file(name)));
  }
}

TEST_CASE("what is cleared in G4 is found by no node of the fleet, nor by one that starts later") {
  SharedPlace shared;
  const std::vector<TestChunk> chunks = Chunks(1, 24, kG4ChunkBytes);
  auto first = std::make_unique<G4Node>(shared.Config());
  G4Node other(shared.Config());
  REQUIRE(first->engine->PutAll(chunks));
  REQUIRE(Eventually([&] { return shared.count() == chunks.size(); }));
  CHECK(first->site.admin()->Clear(nullptr, true)->g4());
  CHECK(RecallLeading(*first->engine, chunks, kLongWait) == 0);
  // It has read the epoch since.
  CHECK(Eventually([&] { return other.site.Counter("g4_epoch") > 0; }, milliseconds(30'000)));
  CHECK(RecallLeading(*other.engine, chunks, kLongWait) == 0);
  first = nullptr;
  G4Node later(shared.Config());
  CHECK(RecallLeading(*later.engine, chunks, kLongWait) == 0);
  // The new epoch is one as the others were.
  const std::vector<TestChunk> more = Chunks(100, 24, kG4ChunkBytes);
  const size_t before = shared.count();
  REQUIRE(other.engine->PutAll(more));
  REQUIRE(Eventually([&] { return shared.count() == before + more.size(); }));
  CHECK(RecallsAll(*later.engine, more));
}

TEST_CASE("of 1,000 deletes none is found again in G2, G3 or G4, however the daemon ends") {
  SharedPlace shared;
  G4Node node(shared.Config());
  constexpr size_t kCount = kSanitized ? 200 : 1'000;
  const std::vector<TestChunk> chunks = Chunks(1, kCount, 10'000);
  REQUIRE(node.engine->PutAll(chunks, {.durable = true}));
  REQUIRE(Eventually([&] { return shared.count() == kCount; }));
  REQUIRE(node.engine->client().Delete(node.engine->ns(), KeysOf(chunks)).value() == kCount);
  SECTION("SIGKILL at once") { node.site.Kill(); }
  SECTION("SIGTERM at once") { node.site.Stop(); }
  node.engine = nullptr;
  node.site.Start();
  node.engine = std::make_unique<Engine>(node.site);
  CHECK(RecallLeading(*node.engine, chunks, kLongWait) == 0);
  const std::vector<TestChunk> tail(chunks.end() - kCount / 5, chunks.end());
  CHECK(RecallLeading(*node.engine, tail, kLongWait) == 0);
  CHECK(node.engine->Find(chunks).any == 0);
  CHECK(Eventually([&] { return shared.count() == 0; }));
  CHECK(node.site.Status().g3().chunks() == 0);
}

}  // namespace kvkeep::e2e
