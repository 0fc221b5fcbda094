#include "tiers/remote/keyed_source.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <map>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_object_store.h"
#include "tests/tiers/remote/image_in_memory.h"
#include "tiers/base/tenant_tag.h"

namespace kvkeep {
namespace {

// Chunks of a tenant.
ChunkId ChunkOf(absl::string_view tenant, uint8_t number) {
  ChunkId id = Chunk(number);
  const uint32_t tag = TenantTagOf(tenant);
  std::memcpy(id.ns.bytes.data(), &tag, sizeof(tag));
  return id;
}

// Keys of tenants, and earlier ones, by their numbers.
struct KeyNumbers {
  uint8_t fleet = 0;
  std::vector<uint8_t> previous = {};
  std::map<std::string, uint8_t> tenants = {};
};

// Nodes that share one bucket, each with keys of its own.
class KeyedBucket {
 public:
  struct Node {
    MemoryObjectStore* store;
    std::unique_ptr<KeyedSource> source;
  };
  Node NodeWith(const KeyNumbers& numbers, const BucketSourceOptions& options = {}) {
    KeySet keys{.fleet = KeysOf(numbers.fleet)};
    for (const uint8_t number : numbers.previous) keys.previous.push_back(KeysOf(number));
    for (const auto& [tenant, number] : numbers.tenants) {
      keys.tenants.emplace(TenantTagOf(tenant), KeysOf(number));
    }
    auto made = std::make_unique<MemoryObjectStore>(&objects, &executor, &clock, 1);
    MemoryObjectStore* const store = made.get();
    return {store, std::make_unique<KeyedSource>(options, std::move(keys), std::move(made), &clock,
                                                 &random)};
  }
  Image Written(Node& node, const ChunkId& id, uint32_t payload = 300'000) {
    Image image = Image::Make(*node.source, id, payload, id.key.bytes[0]);
    std::optional<absl::Status> told;
    node.source->Write({image.id, image.shape, image.header(), image.memory(),
                        [&](absl::Status status) { told = status; }});
    CHECK_FALSE(told.has_value());
    executor.RunAll();
    CHECK(told.value().ok());
    return image;
  }
  RemoteSource::Found Find(Node& node, std::vector<ChunkId> ids) {
    std::optional<RemoteSource::Found> found;
    node.source->Find(std::move(ids), RemoteSource::Wanted::kAny, MonotonicTime::max(),
                      [&](RemoteSource::Found is) {
                        REQUIRE_FALSE(found.has_value());
                        found = std::move(is);
                      });
    CHECK_FALSE(found.has_value());
    executor.RunAll();
    return found.value();
  }
  bool Finds(Node& node, const Image& image) { return Find(node, {image.id})[0] == image.shape; }
  // Reads it as a store does: the header has to be one of the source's place, under its MAC key.
  absl::Status Read(Node& node, const Image& like) {
    Image into = Empty(like);
    Told told;
    StartRead(*node.source, into, &told);
    CHECK_FALSE(told.header.has_value());
    executor.RunAll();
    REQUIRE(told.ended(into.shape));
    if (!told.well()) return told.header->ok() ? told.pieces : *told.header;
    const auto header = DecodeHeader(into.header(), node.source->mac_key());
    REQUIRE(header.ok());
    CHECK(header->identity.id == like.id);
    CHECK(header->placement.place == node.source->place());
    CHECK(std::equal(into.bytes.begin() + kHeaderBytes, into.bytes.end(),
                     like.bytes.begin() + kHeaderBytes));
    return absl::OkStatus();
  }
  absl::Status Remove(Node& node, const ChunkId& id) {
    std::optional<absl::Status> told;
    node.source->Remove(id, [&](absl::Status status) {
      REQUIRE_FALSE(told.has_value());
      told = status;
    });
    CHECK_FALSE(told.has_value());
    executor.RunAll();
    return told.value();
  }

  ManualClock clock;
  ManualExecutor executor;
  SeededRandom random{1};
  MemoryObjects objects;
};

// Removals fail at once under all keys.
constexpr ObjectFaults kAllBroken{.broken = 1};

}  // namespace

TEST_CASE("a tenant's chunks under its own key are there for those who have it, and nobody else") {
  KeyedBucket bucket;
  auto with = bucket.NodeWith({.tenants = {{"a", 1}}});
  auto without = bucket.NodeWith({});
  auto other_key = bucket.NodeWith({.tenants = {{"a", 2}}});
  const Image of_a = bucket.Written(with, ChunkOf("a", 10));
  const Image of_b = bucket.Written(with, ChunkOf("b", 20));
  CHECK(bucket.Finds(with, of_a));
  CHECK(bucket.Read(with, of_a).ok());
  for (auto* node : {&without, &other_key}) {
    CHECK_FALSE(bucket.Finds(*node, of_a));
    CHECK(absl::IsNotFound(bucket.Read(*node, of_a)));
    CHECK(bucket.Remove(*node, of_a.id).ok());
    CHECK(bucket.Finds(*node, of_b));
    CHECK(bucket.Read(*node, of_b).ok());
  }
  CHECK(bucket.objects.now.size() == 2);  // a node that cannot read it has removed nothing
  CHECK(bucket.Read(with, of_a).ok());
  // Its writes hide nothing of the others': each finds its own.
  const Image again = bucket.Written(without, of_a.id);
  CHECK(bucket.objects.now.size() == 3);
  CHECK(bucket.Read(without, again).ok());
  CHECK(bucket.Read(with, of_a).ok());
  CHECK(bucket.Remove(with, of_a.id).ok());
  CHECK(absl::IsNotFound(bucket.Read(with, of_a)));
  // Nor does what it wrote without its key come back, should that be dropped.
  CHECK(absl::IsNotFound(bucket.Read(without, again)));
  CHECK(bucket.objects.now.size() == 1);
  CHECK(bucket.Read(without, of_b).ok());
}

TEST_CASE("what lies under an earlier key is found and read, and what is put goes under this one") {
  KeyedBucket bucket;
  auto before = bucket.NodeWith({.fleet = 1});
  auto long_before = bucket.NodeWith({.fleet = 2});
  const Image old = bucket.Written(before, Chunk(10), (20u << 20) + 5);
  const Image older = bucket.Written(long_before, Chunk(20));
  auto now = bucket.NodeWith({.fleet = 0, .previous = {1, 2}});
  auto rotated = bucket.NodeWith({.fleet = 0});
  const Image fresh = bucket.Written(now, Chunk(30));
  CHECK(bucket.Find(now, {old.id, older.id, fresh.id, Chunk(40)}) ==
        RemoteSource::Found{old.shape, older.shape, fresh.shape, std::nullopt});
  CHECK(now.source->previous_counters().found == 2);
  for (const Image* image : {&old, &older, &fresh}) CHECK(bucket.Read(now, *image).ok());
  CHECK(absl::IsNotFound(bucket.Read(now, Image::Make(*now.source, Chunk(40), 9'000, 1))));
  // Put again, it does not need the earlier key any more; then this one is asked first.
  CHECK_FALSE(bucket.Finds(rotated, old));
  bucket.Written(now, old.id, old.shape.payload_bytes);
  bucket.clock.Advance(std::chrono::minutes(1));  // absent ones are asked for again
  CHECK(bucket.Finds(rotated, old));
  const uint64_t searches = now.source->previous_counters().searches;
  CHECK(bucket.Finds(now, old));
  CHECK(now.source->previous_counters().searches == searches);
}

TEST_CASE("a head under an earlier key and a tail under this one are found in one search") {
  KeyedBucket bucket;
  auto before = bucket.NodeWith({.fleet = 1});
  auto now = bucket.NodeWith({.fleet = 0, .previous = {1}});
  std::vector<ChunkId> ids;
  for (uint8_t i = 0; i < 60; ++i) {
    ids.push_back(Chunk(static_cast<uint8_t>(1 + i)));
    bucket.Written(i < 40 ? before : now, ids.back(), 5'000);
  }
  const RemoteSource::Found found = bucket.Find(now, ids);
  CHECK(std::all_of(found.begin(), found.end(), [](const auto& one) { return one.has_value(); }));
  CHECK(now.source->previous_counters().searches == 1);
}

TEST_CASE("without earlier keys nothing is asked twice, and with them what is absent is, once") {
  KeyedBucket bucket;
  auto plain = bucket.NodeWith({.tenants = {{"a", 3}}});
  auto rotated = bucket.NodeWith({.previous = {1, 2}, .tenants = {{"a", 3}}});
  for (const char* tenant : {"a", "b"}) {
    CAPTURE(tenant);
    const uint64_t one = std::string(tenant) == "a" ? 1 : 3;
    for (uint64_t round = 1; round <= 2; ++round) {
      const uint64_t was = plain.store->gets, was_rotated = rotated.store->gets;
      CHECK_FALSE(bucket.Find(plain, {ChunkOf(tenant, 1), ChunkOf(tenant, 2)})[0].has_value());
      CHECK_FALSE(bucket.Find(rotated, {ChunkOf(tenant, 1), ChunkOf(tenant, 2)})[0].has_value());
      // An image known to be absent is asked for at its head alone, under each key.
      const uint64_t each = round == 1 ? 2 : 1;
      CHECK(plain.store->gets - was == each);
      CHECK(rotated.store->gets - was_rotated == each * one);
    }
  }
}

TEST_CASE("a removal is one under every key, and fails if one of them does") {
  KeyedBucket bucket;
  auto before = bucket.NodeWith({.fleet = 1});
  auto now = bucket.NodeWith({.fleet = 0, .previous = {1}});
  const Image image = bucket.Written(before, Chunk(1));
  bucket.Written(now, Chunk(1));
  CHECK(bucket.objects.now.size() == 2);
  now.store->set_faults(kAllBroken);
  CHECK(absl::IsUnavailable(bucket.Remove(now, image.id)));
  now.store->set_faults({});
  CHECK(bucket.Remove(now, image.id).ok());
  CHECK(bucket.objects.now.empty());
}

// Gets wait for the test to give their results.
class HeldGets final : public ObjectStore {
 public:
  struct Held {
    GetObject get;
    ObjectSink* sink;
    Done done;
  };
  ObjectCall Get(GetObject get, ObjectSink* sink, Done done) override {
    held.push_back({std::move(get), sink, std::move(done)});
    return ObjectCall(held.size());
  }
  ObjectCall Put(PutObject, Done) override { return ObjectCall(0); }
  ObjectCall Delete(DeleteObject, Done) override { return ObjectCall(0); }
  ObjectCall List(ListObjects, ListDone) override { return ObjectCall(0); }
  void Cancel(ObjectCall) override {}
  ObjectStoreHealth health() const override { return {}; }

  std::deque<Held> held;
};

// As when the first part's connection broke, and it is asked for the rest.
TEST_CASE("a first part that begins and is then not there ends a read under several keys") {
  ManualClock clock;
  SeededRandom random{1};
  auto made = std::make_unique<HeldGets>();
  HeldGets& gets = *made;
  KeySet keys{.fleet = KeysOf(0)};
  keys.previous.push_back(KeysOf(1));
  KeyedSource source({}, std::move(keys), std::move(made), &clock, &random);
  Image into = Image::Make(source, Chunk(1), 40u << 20, 1);
  Told told;
  StartRead(source, into, &told);
  const ObjectHead head{.etag = "one", .object_bytes = into.bytes.size()};
  REQUIRE(gets.held.size() == 1);
  REQUIRE(gets.held[0].sink->Begin(head).ok());
  REQUIRE(gets.held.size() > 2);
  const ByteRange second = *gets.held[1].get.range;
  REQUIRE(gets.held[1].sink->Begin(head).ok());
  REQUIRE(gets.held[1]
              .sink->Take(std::span(into.bytes).subspan(second.first, second.bytes))
              .ok());
  std::move(gets.held[1].done)({.outcome = ObjectOutcome::kOk});
  std::move(gets.held[0].done)({.outcome = ObjectOutcome::kAbsent});
  for (size_t i = 2; i < gets.held.size(); ++i) {
    std::move(gets.held[i].done)({.outcome = ObjectOutcome::kCancelled});
  }
  CHECK(told.ended(into.shape));
  CHECK(absl::IsUnavailable(told.header.value_or(absl::OkStatus())));
}

// A reader found it: a later part's "not there" ended the read as if the image had never been.
TEST_CASE("an image that is removed while it is read in parts ends the read under several keys") {
  int cut_short = 0;
  for (int steps = 0; steps < 40; ++steps) {
    CAPTURE(steps);
    KeyedBucket bucket;
    auto node = bucket.NodeWith({.fleet = 0, .previous = {1}});
    const Image image = bucket.Written(node, Chunk(1), 40u << 20);
    Image into = Empty(image);
    Told told;
    StartRead(*node.source, into, &told);
    SeededRandom order(static_cast<uint64_t>(steps));
    const auto run_one = [&] { bucket.executor.RunOne(order.Below(bucket.executor.size())); };
    for (int i = 0; i < steps && bucket.executor.size() > 0; ++i) run_one();
    bucket.objects.now.clear();
    while (bucket.executor.size() > 0) run_one();
    CHECK(told.ended(into.shape));
    cut_short += absl::IsUnavailable(told.pieces) ? 1 : 0;
  }
  CHECK(cut_short > 3);
}

TEST_CASE("a read that fails under this key is not tried under an earlier one") {
  KeyedBucket bucket;
  auto before = bucket.NodeWith({.fleet = 1});
  auto now = bucket.NodeWith({.fleet = 0, .previous = {1}});
  const Image image = bucket.Written(before, Chunk(1));
  now.store->set_faults(kAllBroken);
  const uint64_t gets = now.store->gets;
  CHECK(absl::IsUnavailable(bucket.Read(now, image)));
  CHECK(now.store->gets == gets + 1);
}

TEST_CASE("a header that is not one of its key's is bad, whatever other key of ours it is under") {
  KeyedBucket bucket;
  auto node = bucket.NodeWith({.tenants = {{"a", 1}}});
  auto sealer = bucket.NodeWith({.fleet = 1});  // passes requests on, under the tenant's key
  const ChunkId id = ChunkOf("a", 1);
  Image image = Image::Make(*node.source, id, 300'000, 1);  // under the fleet's key
  SECTION("another key's MAC") {}
  SECTION("another place") {
    ImageHeader header = *DecodeHeader(image.header(), node.source->mac_key());
    EncodeHeader(header, sealer.source->mac_key(), image.header());
  }
  sealer.source->Write({id, image.shape, image.header(), image.memory(),
                        [](const absl::Status& status) { CHECK(status.ok()); }});
  bucket.executor.RunAll();
  REQUIRE(bucket.objects.now.size() == 1);
  CHECK(absl::IsDataLoss(bucket.Read(node, image)));
  CHECK_FALSE(bucket.Finds(node, image));
  CHECK(bucket.objects.now.empty());
}

TEST_CASE("all that is under way is answered once when a source of several keys goes") {
  KeyedBucket bucket;
  auto before = bucket.NodeWith({.fleet = 1});
  const Image image = bucket.Written(before, Chunk(1));
  for (size_t steps = 0; steps < 30; ++steps) {
    auto now = bucket.NodeWith({.fleet = 0, .previous = {1, 2}, .tenants = {{"a", 3}}});
    Image into = Empty(image);
    int found = 0, headers = 0, removed = 0;
    uint64_t bytes = kHeaderBytes;
    now.source->Find({image.id, Chunk(9)}, RemoteSource::Wanted::kAny, MonotonicTime::max(),
                     [&](const RemoteSource::Found&) { ++found; });
    now.source->Read({into.id, into.shape, into.header(), into.memory(),
                      [&](const absl::Status&) { ++headers; },
                      [&](size_t, uint64_t ended, const absl::Status&) { bytes += ended; }});
    now.source->Remove(ChunkOf("a", 1), [&](const absl::Status&) { ++removed; });
    for (size_t i = 0; i < steps && !bucket.executor.idle(); ++i) {
      bucket.executor.RunOne(bucket.random.Below(bucket.executor.size()));
    }
    now.source.reset();
    CAPTURE(steps);
    CHECK((found == 1 && headers == 1 && removed == 1));
    CHECK(bytes == image.bytes.size());
    bucket.executor.RunAll();
  }
}

TEST_CASE("how much may be asked in a second is for all keys together") {
  KeyedBucket bucket;
  auto node = bucket.NodeWith({.fleet = 0, .previous = {1}}, {.probes_per_second = 10});
  std::vector<ChunkId> ids;
  for (uint8_t i = 0; i < 30; ++i) ids.push_back(Chunk(i));
  CHECK(bucket.Find(node, ids) == RemoteSource::Found(30));
  // Ten, of which the earlier key has none; and one, as each search asks something.
  CHECK(node.store->gets == 11);
  CHECK_FALSE(node.source->may_find(Chunk(1).ns));
  node.source->SetProbesPerSecond(0);
  CHECK(node.source->may_find(Chunk(1).ns));
}

}  // namespace kvkeep
