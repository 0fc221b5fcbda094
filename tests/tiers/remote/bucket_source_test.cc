#include "tiers/remote/bucket_source.h"

#include <absl/strings/match.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_object_store.h"
#include "tests/tiers/remote/image_in_memory.h"
#include "tiers/base/bytes.h"

namespace kvkeep {
namespace {

using std::chrono::seconds;
using Wanted = RemoteSource::Wanted;

constexpr MonotonicTime kNever = MonotonicTime::max();

class Bucket {
 public:
  explicit Bucket(const BucketSourceOptions& options = {}, uint64_t seed = 1) : random(seed) {
    auto made = std::make_unique<MemoryObjectStore>(&objects, &executor, &clock, seed);
    store = made.get();
    source = std::make_unique<BucketSource>(options, KeysOf(0), std::move(made), &clock, &random);
  }
  absl::Status Write(Image& image, bool replace = false) {
    std::optional<absl::Status> told;
    source->Write({image.id, image.shape, image.header(), image.memory(),
                   [&](absl::Status status) { told = status; }, replace});
    CHECK_FALSE(told.has_value());
    executor.RunAll();
    return told.value();
  }
  RemoteSource::Found Find(std::vector<ChunkId> ids, Wanted wanted = Wanted::kLeadingRun) {
    std::optional<RemoteSource::Found> found;
    source->Find(std::move(ids), wanted, kNever, [&](RemoteSource::Found is) {
      REQUIRE_FALSE(found.has_value());
      found = std::move(is);
    });
    executor.RunAll();
    return found.value();
  }
  // Returns seconds, "none told", or the status' code.
  std::string Age(const ChunkId& id) {
    std::string told;
    source->Age(id, [&](absl::StatusOr<std::chrono::seconds> age) {
      CHECK(told.empty());
      told = !age.ok()                         ? absl::StatusCodeToString(age.status().code())
             : *age == RemoteSource::kAgeless ? "none told"
                                               : absl::StrCat(age->count());
    });
    CHECK(told.empty());
    executor.RunAll();
    return told;
  }
  void Read(Image& into, Told* told) { StartRead(*source, into, told); }
  std::string& only_name() {
    REQUIRE(objects.now.size() == 1);
    name_ = objects.now.begin()->first;
    return name_;
  }
  void Replace(const std::string& name, std::string body) {
    objects.now[name] = std::make_shared<const MemoryObjects::Version>(MemoryObjects::Version{
        std::move(body), absl::StrCat("\"r", ++objects.versions, "\""), UnixSeconds(1)});
  }

  ManualClock clock;
  ManualExecutor executor;
  SeededRandom random;
  MemoryObjects objects;
  MemoryObjectStore* store = nullptr;
  std::unique_ptr<BucketSource> source;

 private:
  std::string name_;
};

}  // namespace

TEST_CASE("an image that is written is found, and read as it was, in all sizes") {
  Bucket b;
  uint8_t number = 0;
  for (const uint32_t payload : {1u, 4096u, 1u << 20, (3u << 20) + 5, 20u << 20}) {
    CAPTURE(payload);
    Image image = Image::Make(*b.source, Chunk(++number), payload, payload);
    CHECK(b.Write(image).ok());
    CHECK(b.Find({image.id, Chunk(99)}) == RemoteSource::Found{image.shape, std::nullopt});
    Image read = Empty(image);
    Told told;
    b.Read(read, &told);
    b.executor.RunAll();
    REQUIRE(told.ended(image.shape));
    CHECK(told.well());
    CHECK(read.bytes == image.bytes);
  }
  CHECK(b.source->counters().probes_found == 5);
  CHECK(b.source->counters().probes_absent + b.source->counters().known_absent == 5);
}

TEST_CASE("a bucket shows neither key nor namespace of what lies in it") {
  Bucket b;
  Image image = Image::Make(*b.source, Chunk(1), 10'000, 3);
  CHECK(b.Write(image).ok());
  const std::string body = b.objects.now.begin()->second->body;
  CHECK(body.size() == image.bytes.size());
  CHECK_FALSE(absl::StrContains(body, image.id.key.view().substr(0, 8)));
  CHECK_FALSE(absl::StrContains(body, image.id.ns.view().substr(0, 8)));
  CHECK_FALSE(absl::StrContains(body, "KVKIMAGE"));
  CHECK_FALSE(absl::StrContains(b.only_name(), image.id.key.ToHex().substr(0, 8)));
}

TEST_CASE("a large image is read in parts, a few at once, all of the first one's version") {
  Bucket b;
  Image image = Image::Make(*b.source, Chunk(1), 60u << 20, 3);
  CHECK(b.Write(image).ok());
  b.store->got.clear();
  Image read = Empty(image);
  Told told;
  b.Read(read, &told);
  b.executor.RunAll();
  CHECK((told.ended(image.shape) && told.well()));
  CHECK(read.bytes == image.bytes);
  REQUIRE(b.store->got.size() == 8);
  CHECK(b.store->got[0].if_match.empty());
  for (size_t i = 1; i < 8; ++i) {
    CHECK(b.store->got[i].if_match == "\"m1\"");
    CHECK(b.store->got[i].range->bytes <= 8 * kMiB);
  }
  CHECK(b.store->most_at_once == 4);
}

TEST_CASE("no part is a sliver, and beside many others an image is read whole") {
  Bucket b({.whole_beside = 3});
  std::vector<Image> images;
  for (uint64_t name = 1; name <= 5; ++name) {
    images.push_back(Image::Make(*b.source, Chunk(name), 16 * kMiB, name));
    CHECK(b.Write(images.back()).ok());
  }
  b.store->got.clear();
  // One by one, then all at once, then one alone again.
  std::vector<Image> read;
  for (const Image& image : images) read.push_back(Empty(image));
  std::vector<Told> told(images.size());
  const auto requests = [&](size_t first, size_t end) {
    b.store->got.clear();
    for (size_t i = first; i < end; ++i) {
      told[i] = Told();
      b.Read(read[i], &told[i]);
    }
    b.executor.RunAll();
    for (size_t i = first; i < end; ++i) {
      CHECK((told[i].ended(images[i].shape) && told[i].well()));
      CHECK(read[i].bytes == images[i].bytes);
    }
    return b.store->got.size();
  };
  CHECK(requests(0, 1) == 2);
  for (const GetObject& part : b.store->got) CHECK(part.range->bytes > 4 * kMiB);
  CHECK(requests(0, 5) == 2 * 3 + 2);
  // Objects that are read whole are asked for without a range.
  const auto whole = [](const GetObject& get) { return !get.range.has_value(); };
  CHECK(std::count_if(b.store->got.begin(), b.store->got.end(), whole) == 2);
  CHECK(requests(4, 5) == 2);
  const auto there = std::exchange(b.objects.now, {});  // reads that failed have ended, too
  for (size_t i = 0; i < 5; ++i) {
    told[i] = Told();
    b.Read(read[i], &told[i]);
  }
  b.executor.RunAll();
  CHECK(b.source->counters().failed_reads == 5);
  b.objects.now = there;
  CHECK(requests(0, 1) == 2);
}

TEST_CASE("an image that is replaced while it is read is read as it was, or fails: never both") {
  Bucket b({.whole_up_to = 100'000, .part_bytes = 65'536});
  Image image = Image::Make(*b.source, Chunk(1), 400'000, 3);
  CHECK(b.Write(image).ok());
  int failed = 0;
  for (size_t steps = 0; steps < 40; ++steps) {
    Image read = Empty(image);
    Told told;
    b.Read(read, &told);
    for (size_t i = 0; i < steps && !b.executor.idle(); ++i) {
      b.executor.RunOne(b.random.Below(b.executor.size()));
    }
    const auto before = b.objects.now.begin()->second;
    b.Replace(b.only_name(), std::string(before->body.size(), 'x'));
    b.executor.RunAll();
    CAPTURE(steps);
    REQUIRE(told.ended(image.shape));
    if (told.well()) {
      CHECK(read.bytes == image.bytes);
    } else {
      ++failed;
      // The first part may be another image's, whole; then its header says so.
      CHECK((absl::IsUnavailable(told.pieces) || absl::IsDataLoss(*told.header)));
    }
    b.objects.now.begin()->second = before;
  }
  CHECK(failed > 5);
  CHECK(failed < 40);
}

TEST_CASE("what is cut off, changed, plain, of another chunk or place is absent, and removed") {
  Bucket b;
  Image image = Image::Make(*b.source, Chunk(1), 100'000, 3);
  CHECK(b.Write(image).ok());
  const std::string name = b.only_name(), body = b.objects.now[name]->body;
  uint64_t removed = 0;
  const auto is_bad = [&] {
    CHECK(b.Find({image.id}) == RemoteSource::Found{std::nullopt});
    b.executor.RunAll();
    CHECK_FALSE(b.objects.now.contains(name));
    CHECK(b.source->counters().removed_bad == ++removed);
  };
  for (const size_t bytes : {size_t{0}, size_t{100}, kBlockBytes, body.size() - 1}) {
    CAPTURE(bytes);
    b.Replace(name, body.substr(0, bytes));
    is_bad();
  }
  std::string flipped = body;
  flipped[2000] ^= 1;
  b.Replace(name, flipped);
  is_bad();
  Image other = Image::Make(*b.source, Chunk(2), 100'000, 4);
  CHECK(b.Write(other).ok());
  b.Replace(name, b.objects.now[b.only_name()]->body);
  is_bad();
  b.objects.now.clear();
  Image misplaced = Image::Make(*b.source, image.id, 100'000, 3, Tier::kG3);
  CHECK(b.Write(misplaced).ok());
  is_bad();
  Image plain = Image::Make(*b.source, image.id, 100'000, 3, Tier::kG4, /*encrypted=*/false);
  CHECK(b.Write(plain).ok());
  is_bad();
  CHECK(b.source->counters().bad_size == 4);
  CHECK(b.source->counters().bad_seal == 1);
  CHECK(b.source->counters().bad_identity == 2);
  CHECK(b.source->counters().bad_plain == 1);
}

TEST_CASE("another fleet finds nothing, and touches nothing") {
  Bucket b;
  Image image = Image::Make(*b.source, Chunk(1), 100'000, 3);
  CHECK(b.Write(image).ok());
  for (const auto& [fleet, epoch] : {std::pair(1, 0), std::pair(0, 1)}) {
    BucketSource other({.epoch = static_cast<uint64_t>(epoch)},
                       KeysOf(static_cast<uint8_t>(fleet)),
                       std::make_unique<MemoryObjectStore>(&b.objects, &b.executor, &b.clock),
                       &b.clock, &b.random);
    RemoteSource::Found found;
    other.Find({image.id}, Wanted::kLeadingRun, kNever,
               [&](RemoteSource::Found is) { found = std::move(is); });
    b.executor.RunAll();
    CHECK(found == RemoteSource::Found{std::nullopt});
  }
  CHECK(b.objects.now.size() == 1);
}

TEST_CASE("a chunk that is written twice is there once, and what is removed is absent") {
  Bucket b;
  Image image = Image::Make(*b.source, Chunk(1), 100'000, 3);
  CHECK(b.Write(image).ok());
  CHECK(absl::IsAlreadyExists(b.Write(image)));
  CHECK(b.source->counters().already_there == 1);
  std::optional<absl::Status> removed;
  b.source->Remove(image.id, [&](absl::Status status) { removed = status; });
  b.executor.RunAll();
  CHECK(removed->ok());
  CHECK(b.Find({image.id}) == RemoteSource::Found{std::nullopt});
  Image read = Empty(image);
  Told told;
  b.Read(read, &told);
  b.executor.RunAll();
  CHECK((told.ended(image.shape) && absl::IsNotFound(*told.header)));
}

TEST_CASE("an image's age is told when it is asked for, and when it is read") {
  Bucket b;
  Image image = Image::Make(*b.source, Chunk(1), 20 << 20, 3);
  CHECK(b.Age(image.id) == "NOT_FOUND");
  CHECK(b.Write(image).ok());
  b.clock.Advance(std::chrono::hours(30));
  CHECK(b.Age(image.id) == "108000");
  Image read = Empty(image);
  Told told;
  b.Read(read, &told);
  b.executor.RunAll();
  CHECK((told.ended(image.shape) && told.well()));
  CHECK(told.age == std::chrono::hours(30));
  b.clock.StepUnix(-std::chrono::hours(40));  // behind the server's
  CHECK(b.Age(image.id) == "0");
  b.store->set_faults({.broken = 1});
  CHECK(b.Age(image.id) == "UNAVAILABLE");
  CHECK(b.source->counters().probes == 4);
}

TEST_CASE("an image's age is by the store's clock where the store tells its time") {
  Bucket b;
  Image image = Image::Make(*b.source, Chunk(1), 5000, 3);
  CHECK(b.Write(image).ok());
  const UnixSeconds written(static_cast<int64_t>(b.clock.UnixMicros() / 1'000'000));
  b.store->date = UnixSeconds(written.value() + 60);
  for (const auto step : {std::chrono::hours(40), -std::chrono::hours(80)}) {
    b.clock.StepUnix(step);
    CHECK(b.Age(image.id) == "60");
  }
}

TEST_CASE("what is there and not ours has no age, and is removed") {
  Bucket b;
  Image image = Image::Make(*b.source, Chunk(1), 5000, 3);
  CHECK(b.Write(image).ok());
  b.Replace(b.only_name(), std::string(8192, 'x'));
  CHECK(b.Age(image.id) == "NOT_FOUND");
  CHECK(b.objects.now.empty());
}

TEST_CASE("a write that replaces makes an image new, one that does not spares what is there") {
  Bucket b;
  Image image = Image::Make(*b.source, Chunk(1), 5000, 3);
  CHECK(b.Write(image).ok());
  b.clock.Advance(seconds(100));
  CHECK(absl::IsAlreadyExists(b.Write(image)));
  CHECK(b.Age(image.id) == "100");
  CHECK(b.Write(image, true).ok());
  CHECK(b.Age(image.id) == "0");
  CHECK(b.source->counters().already_there == 1);
  CHECK(b.source->counters().replacing_writes == 1);
}

TEST_CASE("a long run is searched by few probes, and what was not asked for is believed") {
  Bucket b;
  const size_t there = GENERATE(0u, 1u, 97u, 128u);
  CAPTURE(there);
  std::vector<ChunkId> ids;
  for (uint8_t i = 0; i < 128; ++i) {
    for (const uint32_t part : {0u, 1u}) {
      ids.push_back(Chunk(i));
      ids.back().part = PartId(part);
      if (i >= there) continue;
      Image image = Image::Make(*b.source, ids.back(), 5000, i);
      CHECK(b.Write(image).ok());
    }
  }
  const RemoteSource::Found found = b.Find(ids);
  REQUIRE(found.size() == 256);
  for (size_t i = 0; i < 256; ++i) CHECK(found[i].has_value() == (i < 2 * there));
  CHECK(b.store->gets <= 40);
  CHECK(b.source->counters().search_rounds <= 3);
  CHECK(b.source->counters().believed_chunks >= there);
}

TEST_CASE("of a short run each key is asked for, and found behind a hole too") {
  Bucket b;
  std::vector<ChunkId> ids;
  for (uint8_t i = 0; i < 20; ++i) {
    ids.push_back(Chunk(i));
    if (i == 7) continue;
    Image image = Image::Make(*b.source, ids.back(), 1000 + i, i);
    CHECK(b.Write(image).ok());
  }
  const RemoteSource::Found found = b.Find(ids);
  for (uint32_t i = 0; i < 20; ++i) {
    CHECK(found[i].has_value() == (i != 7));
    if (i != 7) CHECK(found[i]->payload_bytes == 1000 + i);
  }
}

TEST_CASE("the last chunks of a long run are found by who has a use for them without the first") {
  Bucket b;
  std::vector<ChunkId> ids;
  for (uint8_t i = 0; i < 200; ++i) {
    ids.push_back(Chunk(i));
    if (i < 190 || i == 195) continue;
    Image image = Image::Make(*b.source, ids.back(), 1000 + i, i);
    CHECK(b.Write(image).ok());
  }
  const RemoteSource::Found found = b.Find(ids, Wanted::kAny);
  for (uint32_t i = 0; i < 200; ++i) {
    CAPTURE(i);
    CHECK(found[i].has_value() == (i >= 190 && i != 195));
    if (found[i].has_value()) CHECK(found[i]->payload_bytes == 1000 + i);
  }
  CHECK(b.store->gets == 48);
  CHECK(b.Find(ids, Wanted::kLeadingRun) == RemoteSource::Found(200));
}

TEST_CASE("of the last chunks those nearest to the end are asked for when not all may be") {
  Bucket b({.probes_per_second = 30});
  std::vector<ChunkId> ids;
  for (uint8_t i = 0; i < 200; ++i) {
    ids.push_back(Chunk(i));
    if (i < 150) continue;
    Image image = Image::Make(*b.source, ids.back(), 1000 + i, i);
    CHECK(b.Write(image).ok());
  }
  const RemoteSource::Found found = b.Find(ids, Wanted::kAny);
  CHECK(b.source->counters().probes_declined > 0);
  size_t from = 200;
  while (found[from - 1].has_value()) --from;
  CHECK(from < 190);
  // Both ends were searched first, 1, 2, 4, ... from the last one.
  for (size_t i = 0; i < from; ++i) {
    CAPTURE(i);
    const bool looked_at = i == 199 - 16 || i == 199 - 32 || i < 150;
    if (!looked_at) CHECK_FALSE(found[i].has_value());
  }
}

TEST_CASE("no more is probed at once than may be, and a search ends by its deadline") {
  Bucket b({.find_within = seconds(1), .probes_at_once = 8});
  std::vector<ChunkId> ids;
  for (uint8_t i = 0; i < 100; ++i) ids.push_back(Chunk(i));
  CHECK(b.Find(ids) == RemoteSource::Found(100));
  CHECK(b.store->most_at_once == 8);
  std::optional<RemoteSource::Found> found;
  b.source->Find(ids, Wanted::kLeadingRun, kNever,
                 [&](RemoteSource::Found is) { found = std::move(is); });
  b.clock.Advance(seconds(1));
  b.executor.RunAll();
  CHECK(found.has_value());
}

TEST_CASE("no more is asked in a second than may be, and a search finds the less") {
  Bucket b({.probes_per_second = 10});
  std::vector<ChunkId> ids;
  for (uint8_t i = 0; i < 30; ++i) {
    ids.push_back(Chunk(i));
    Image image = Image::Make(*b.source, ids.back(), 1000, i);
    CHECK(b.Write(image).ok());
  }
  const auto found = [&] {
    const RemoteSource::Found is = b.Find(ids);
    return std::count_if(is.begin(), is.end(), [](const auto& one) { return one.has_value(); });
  };
  CHECK((b.source->may_find(Chunk(1).ns) && b.source->may_ask_age()));
  CHECK(found() == 10);
  CHECK_FALSE(b.source->may_find(Chunk(1).ns));
  CHECK(found() == 1);  // nothing is answered inside the call, so one is asked
  CHECK(b.source->counters().probes_declined == 20 + 29);
  b.clock.Advance(std::chrono::milliseconds(600));
  CHECK(b.source->may_find(Chunk(1).ns));
  CHECK_FALSE(b.source->may_ask_age());
  CHECK(found() == 5);  // one is owed
  b.clock.Advance(seconds(1));
  CHECK(b.Age(ids[0]) == "1");
  b.source->SetProbesPerSecond(0);
  CHECK(found() == 30);
}

TEST_CASE("what was absent is not asked for again for a while, but for the first of all") {
  Bucket b;
  b.clock.Advance(std::chrono::hours(1000));  // as long as the machine is up
  std::vector<ChunkId> ids;
  for (uint8_t i = 0; i < 20; ++i) ids.push_back(Chunk(i));
  CHECK(b.Find(ids) == RemoteSource::Found(20));
  CHECK(b.source->counters().probes == 20);
  CHECK(b.Find(ids) == RemoteSource::Found(20));
  CHECK(b.source->counters().probes == 21);
  CHECK(b.source->counters().known_absent == 19);
  // An image that this node writes is known to be there.
  Image image = Image::Make(*b.source, Chunk(1), 1000, 3);
  CHECK(b.Write(image).ok());
  CHECK(b.Find({Chunk(0), Chunk(1)})[1].has_value());
  CHECK(b.source->counters().probes == 22);
  // An image that another node wrote is found once the time is over.
  Bucket other;
  other.source = std::make_unique<BucketSource>(
      BucketSourceOptions{}, KeysOf(0),
      std::make_unique<MemoryObjectStore>(&b.objects, &other.executor, &other.clock), &other.clock,
      &other.random);
  Image second = Image::Make(*other.source, Chunk(2), 1000, 3);
  CHECK(other.Write(second).ok());
  CHECK_FALSE(b.Find({Chunk(1), Chunk(2)})[1].has_value());
  b.clock.Advance(seconds(10));
  CHECK(b.Find({Chunk(1), Chunk(2)})[1].has_value());
}

TEST_CASE("a question that is not answered in time is no absence: what is known by then counts") {
  Bucket b;
  std::vector<ChunkId> ids;
  for (uint8_t i = 0; i < 100; ++i) ids.push_back(Chunk(i));
  for (uint8_t i = 0; i < 50; ++i) {
    Image image = Image::Make(*b.source, Chunk(i), 1000, 3);
    CHECK(b.Write(image).ok());
  }
  std::optional<RemoteSource::Found> found;
  b.source->Find(ids, Wanted::kLeadingRun, b.clock.Now() + std::chrono::milliseconds(50),
                 [&](RemoteSource::Found is) { found = std::move(is); });
  while (b.source->counters().search_rounds < 2) b.executor.RunOne(0);
  b.clock.Advance(std::chrono::milliseconds(50));
  b.executor.RunAll();
  REQUIRE(found.has_value());
  const auto known = static_cast<size_t>(
      std::count_if(found->begin(), found->end(), [](const auto& one) { return one.has_value(); }));
  CHECK(known == 33);  // positions 0, 1, 2, 4, ... 32 were asked for first
  CHECK((*found)[known - 1].has_value());
  // Nothing of it is remembered as absent.
  b.source->Find(ids, Wanted::kLeadingRun, kNever,
                 [&](RemoteSource::Found is) { found = std::move(is); });
  b.executor.RunAll();
  CHECK((*found)[49].has_value());
  CHECK_FALSE((*found)[50].has_value());
}

TEST_CASE("an object that is refused alone is as good as absent, and is not asked for at once") {
  Bucket b;
  Image read = Image::Make(*b.source, Chunk(3), 5000, 3);
  CHECK(b.Write(read).ok());
  b.store->refused.insert(b.only_name());
  std::vector<ChunkId> ids;
  for (uint64_t name = 1; name <= 8; ++name) {
    Image image = Image::Make(*b.source, Chunk(name), 5000, name);
    if (name != 3) CHECK(b.Write(image).ok());
    ids.push_back(image.id);
  }
  for (int i = 0; i < 2; ++i) {
    const RemoteSource::Found found = b.Find(ids, Wanted::kAny);
    for (size_t at = 0; at < 8; ++at) CHECK(found[at].has_value() == (at != 2));
  }
  CHECK(b.source->counters().known_absent == 1);
  Told told;
  b.Read(read, &told);
  b.executor.RunAll();
  CHECK(told.ended(read.shape));
  CHECK(absl::IsUnavailable(*told.header));
}

TEST_CASE("a source with enough on its way, or a store that takes no puts, is not writable") {
  Bucket b({.writes_in_flight = 200'000});
  CHECK(b.source->writable());
  Image image = Image::Make(*b.source, Chunk(1), 250'000, 3);
  bool told = false;
  b.source->Write({image.id, image.shape, image.header(), image.memory(),
                   [&](absl::Status) { told = true; }});
  CHECK_FALSE(b.source->writable());
  b.executor.RunAll();
  CHECK(told);
  CHECK(b.source->writable());
  b.store->set_health({.takes_puts = false});
  CHECK_FALSE(b.source->writable());
  CHECK(b.source->readable());
}

TEST_CASE("whatever a bucket does, all is answered once, and nothing is well that is not") {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    Bucket b({.whole_up_to = 60'000, .part_bytes = 40'960}, seed);
    b.store->set_faults({.delay = 0.3, .broken = 0.05, .throttled = 0.05, .misconfigured = 0.02,
                         .full = 0.02, .late = 0.02, .answer_lost = 0.1, .body_cut = 0.1,
                         .half_published = 0.1, .gone = 0.03, .hides_all = 0.02,
                         .ignores_if_absent = 0.1});
    std::vector<Image> images;
    int asked = 0, answered = 0;
    for (uint8_t i = 0; i < 6; ++i) {
      images.push_back(Image::Make(*b.source, Chunk(i), 1 + i * 40'000u, i));
    }
    std::vector<Image> reads;
    for (const Image& image : images) reads.push_back(Empty(image));
    std::vector<Told> told(images.size());
    for (Image& image : images) {
      ++asked;
      b.source->Write({image.id, image.shape, image.header(), image.memory(),
                       [&](absl::Status) { ++answered; }});
    }
    for (size_t i = 0; i < b.random.Below(100) && !b.executor.idle(); ++i) {
      b.executor.RunOne(b.random.Below(b.executor.size()));
    }
    for (size_t i = 0; i < images.size(); ++i) {
      b.Read(reads[i], &told[i]);
      asked += 2;
      const std::vector<ChunkId> asked = {images[i].id, Chunk(77)};
      b.source->Find(asked, Wanted::kAny, kNever, [&, i](RemoteSource::Found found) {
        ++answered;
        CHECK((!found[0].has_value() || *found[0] == images[i].shape));
        CHECK_FALSE(found[1].has_value());
      });
      b.source->Remove(Chunk(78), [&](absl::Status) { ++answered; });
    }
    const bool goes = b.random.Chance(0.3);
    while (!b.executor.idle()) {
      if (goes && b.random.Chance(0.01)) break;
      b.executor.RunOne(b.random.Below(b.executor.size()));
    }
    b.source.reset();
    CHECK(answered == asked);
    for (size_t i = 0; i < images.size(); ++i) {
      REQUIRE(told[i].ended(images[i].shape));
      if (told[i].well()) CHECK(reads[i].bytes == images[i].bytes);
    }
  }
}

}  // namespace kvkeep
