// Behaviour of every ObjectStore: in memory, in a directory, in a bucket without a network and in
// one behind sockets. A fake with other behaviour would make the tests above it worthless.
#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "tests/fakes/memory_object_store.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/tiers/objects/scripted_bucket.h"
#include "tests/fakes/served_bucket.h"
#include "tiers/base/crc32c.h"
#include "tiers/objects/curl_engine.h"
#include "tiers/objects/directory_store.h"
#include "tiers/objects/spread_store.h"

namespace kvkeep {
namespace {

using Outcome = ObjectOutcome;

// A store of each kind, with the objects it needs.
class ObjectWorld {
 public:
  explicit ObjectWorld(const std::string& kind) {
    if (kind == "memory") {
      memory_ = std::make_unique<MemoryObjects>();
      store_ = std::make_unique<MemoryObjectStore>(memory_.get(), &executor_, &manual_);
    } else if (kind == "directory") {
      threads_ = std::make_unique<ThreadPool>("directory", 2);
      KVKEEP_CHECK(MarkSharedDirectory(directory_.path(), "tests").ok());
      store_ = std::make_unique<DirectoryStore>(
          DirectoryStoreOptions{.path = directory_.path(), .mark = "tests"}, threads_.get(),
          RealClock(), RealRandom());
    } else if (kind == "bucket") {
      scripted_ = std::make_unique<ScriptedBucket>();
    } else {
      bucket_ = std::make_unique<FakeS3>(
          RealClock(), std::make_shared<const S3Keys>(S3Keys{"ID", SecretText("secret"), "", {}}));
      server_ = std::make_unique<ScriptedServer>(
          [this](ServedConnection& connection, int) { ServeBucket(*bucket_, connection); });
      credentials_ = std::make_unique<S3Credentials>(
          std::make_unique<SetKeySource>(std::make_shared<std::string>("secret")), RealClock(),
          RealRandom());
      credentials_->Tick();
      const size_t stores = kind == "bucket by three threads" ? 3 : 1;
      std::vector<std::unique_ptr<ObjectStore>> all;
      for (size_t i = 0; i < stores; ++i) {
        all.push_back(std::make_unique<S3Store>(
            S3Urls::Make({.endpoints = {server_->url("")}, .bucket = "bucket"}).value(),
            S3StoreOptions{}, CurlEngine::Make({}, RealClock()).value(), credentials_.get(),
            RealClock(), RealRandom()));
      }
      store_ = stores == 1 ? std::move(all.front()) : std::make_unique<SpreadStore>(std::move(all));
    }
  }

  ObjectStore& store() { return scripted_ == nullptr ? *store_ : *scripted_->store; }
  void DestroyStore() { (scripted_ == nullptr ? store_.reset() : scripted_->store.reset()); }
  MonotonicTime Now() const {
    return scripted_ != nullptr ? scripted_->clock.Now()
           : memory_ != nullptr ? manual_.Now()
                                : RealClock()->Now();
  }

  ObjectStore::Done Note(ObjectAnswer* into) {
    MutexLock lock(&mu_);
    ++awaited_;
    return [this, into](ObjectAnswer answer) {
      MutexLock inner(&mu_);
      *into = std::move(answer);
      --awaited_;
      changed_.NotifyAll();
    };
  }
  // Waits until everything that was noted has come.
  void Await() {
    while (memory_ != nullptr && !executor_.idle()) executor_.RunAll();
    if (scripted_ != nullptr) scripted_->Advance(std::chrono::seconds(20));
    MutexLock lock(&mu_);
    while (awaited_ > 0) {
      KVKEEP_CHECK(memory_ == nullptr && scripted_ == nullptr);
      changed_.Wait(&mu_);
    }
  }
  ObjectAnswer Get(GetObject get, ObjectSink* sink) {
    ObjectAnswer answer;
    store().Get(std::move(get), sink, Note(&answer));
    Await();
    return answer;
  }
  ObjectAnswer Put(const std::string& name, const std::string& body, bool if_absent = false) {
    ObjectAnswer answer;
    store().Put({.name = name,
                 .body = {AsBytes(body).first(body.size() / 3),
                          AsBytes(body).subspan(body.size() / 3)},
                 .crc32c = Crc32c(AsBytes(body)),
                 .if_absent = if_absent},
                Note(&answer));
    Await();
    return answer;
  }
  ObjectAnswer Delete(const std::string& name) {
    ObjectAnswer answer;
    store().Delete({.name = name}, Note(&answer));
    Await();
    return answer;
  }
  ObjectListing List(const std::string& prefix, const std::string& token) {
    ObjectAnswer answer;
    ObjectListing page;
    store().List({.prefix = prefix, .token = token},
                 [&page, done = Note(&answer)](ObjectAnswer told, ObjectListing listed) mutable {
                   page = std::move(listed);
                   std::move(done)(std::move(told));
                 });
    Await();
    CHECK(answer.ok());
    return page;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int awaited_ ABSL_GUARDED_BY(mu_) = 0;

  ManualExecutor executor_;
  ManualClock manual_;
  ScratchDir directory_;
  std::unique_ptr<MemoryObjects> memory_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<FakeS3> bucket_;
  std::unique_ptr<ScriptedServer> server_;
  std::unique_ptr<S3Credentials> credentials_;
  std::unique_ptr<ScriptedBucket> scripted_;
  std::unique_ptr<ObjectStore> store_;
};

std::string Pattern(size_t bytes, uint64_t seed) {
  SeededRandom random(seed);
  std::string text(bytes, '\0');
  random.Fill(std::as_writable_bytes(std::span(text)));
  return text;
}

#define EVERY_KIND_OF_STORE() \
  GENERATE(as<std::string>{}, "memory", "directory", "bucket", "bucket behind sockets", \
           "bucket by three threads")

}  // namespace

TEST_CASE("an object that is put is read back, in all sizes and parts, until it is deleted") {
  ObjectWorld world(EVERY_KIND_OF_STORE());
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, size_t{3 * kMiB + 7}}) {
    CAPTURE(bytes);
    const std::string name = absl::StrCat("1/0ab/", bytes), body = Pattern(bytes, bytes);
    CHECK(world.Put(name, body).ok());
    TextObjectSink whole;
    const ObjectAnswer read = world.Get({.name = name}, &whole);
    CHECK(read.ok());
    CHECK(read.given == bytes);
    CHECK(whole.begins == 1);
    CHECK(whole.text == body);
    CHECK(whole.head.object_bytes == bytes);
    CHECK_FALSE(whole.head.etag.empty());
    CHECK(whole.head.etag == read.head.etag);
    if (bytes < 100) continue;
    for (const ByteRange range : {ByteRange{0, 10}, ByteRange{7, 50}, ByteRange{bytes - 5, 5},
                                  ByteRange{bytes - 5, 500}}) {
      CAPTURE(range.first, range.bytes);
      TextObjectSink part;
      CHECK(world.Get({.name = name, .range = range}, &part).ok());
      CHECK(part.text == body.substr(range.first, range.bytes));
      CHECK(part.head.object_bytes == bytes);
    }
    TextObjectSink beyond;
    CHECK(world.Get({.name = name, .range = ByteRange{bytes, 1}}, &beyond).outcome ==
          Outcome::kShort);
    CHECK(beyond.begins == 0);
    CHECK(world.Delete(name).ok());
    CHECK(world.Get({.name = name}, &beyond).outcome == Outcome::kAbsent);
    CHECK(world.Delete(name).ok());
  }
}

TEST_CASE("a version is told, and one that was replaced is not read under its name") {
  ObjectWorld world(EVERY_KIND_OF_STORE());
  CHECK(world.Put("1/n", "first").ok());
  TextObjectSink first, second, changed;
  const std::string etag = world.Get({.name = "1/n"}, &first).head.etag;
  CHECK(world.Get({.name = "1/n", .range = ByteRange{1, 2}, .if_match = etag}, &second).ok());
  CHECK(second.text == "ir");
  CHECK(world.Put("1/n", "other").ok());
  CHECK(world.Get({.name = "1/n", .if_match = etag}, &changed).outcome == Outcome::kChanged);
  CHECK(changed.begins == 0);
}

TEST_CASE("of many who put what is not there one succeeds, and nothing of the others is there") {
  ObjectWorld world(EVERY_KIND_OF_STORE());
  for (int round = 0; round < 5; ++round) {
    const std::string name = absl::StrCat("1/", round);
    std::vector<std::string> bodies;
    std::vector<ObjectAnswer> answers(12);
    for (size_t i = 0; i < 12; ++i) bodies.push_back(Pattern(10'000, i));
    for (size_t i = 0; i < 12; ++i) {
      world.store().Put({.name = name, .body = {AsBytes(bodies[i])}, .if_absent = true},
                        world.Note(&answers[i]));
    }
    world.Await();
    std::vector<size_t> winners;
    for (size_t i = 0; i < 12; ++i) {
      if (answers[i].ok()) winners.push_back(i);
      CHECK((answers[i].ok() || answers[i].outcome == Outcome::kExists));
    }
    REQUIRE(winners.size() == 1);
    TextObjectSink sink;
    CHECK(world.Get({.name = name}, &sink).ok());
    CHECK(sink.text == bodies[winners[0]]);
  }
  CHECK(world.Put("1/0", "another").ok());  // without the condition it replaces
}

TEST_CASE("a body that is not what its checksum says is not there afterwards") {
  ObjectWorld world(EVERY_KIND_OF_STORE());
  const std::string body = "hello";
  ObjectAnswer answer;
  world.store().Put({.name = "1/n", .body = {AsBytes(body)}, .crc32c = 1}, world.Note(&answer));
  world.Await();
  CHECK(answer.outcome == Outcome::kBroken);
  TextObjectSink sink;
  CHECK(world.Get({.name = "1/n"}, &sink).outcome == Outcome::kAbsent);
}

TEST_CASE("a list is of a prefix, by name, and by pages of a thousand") {
  ObjectWorld world(EVERY_KIND_OF_STORE());
  std::vector<ObjectAnswer> answers(1003);
  for (size_t i = 0; i < answers.size(); ++i) {
    world.store().Put({.name = absl::StrCat("1/", i % 7, "/", i)}, world.Note(&answers[i]));
  }
  world.Await();
  CHECK(world.Put("2/other", "x").ok());
  std::set<std::string> names;
  std::string token, last;
  int pages = 0;
  do {
    const ObjectListing page = world.List("1/", token);
    CHECK(page.objects.size() <= ObjectListing::kMaxObjects);
    for (const ListedObject& object : page.objects) {
      CHECK(last < object.name);
      last = object.name;
      names.insert(object.name);
    }
    token = page.next_token;
    ++pages;
  } while (!token.empty() && pages < 10);
  CHECK(pages == 2);
  CHECK(names.size() == 1003);
  const ObjectListing one = world.List("2/", "");
  REQUIRE(one.objects.size() == 1);
  CHECK(one.objects[0].name == "2/other");
  CHECK(one.objects[0].bytes == 1);
}

TEST_CASE("a sink that refuses ends its read with what it said") {
  ObjectWorld world(EVERY_KIND_OF_STORE());
  CHECK(world.Put("1/n", Pattern(3 * kMiB, 1)).ok());
  TextObjectSink at_once, later;
  at_once.says = absl::AbortedError("not this one");
  const ObjectAnswer refused = world.Get({.name = "1/n"}, &at_once);
  CHECK(refused.outcome == Outcome::kCancelled);
  CHECK(refused.error.message == "not this one");
  CHECK(at_once.text.empty());
  later.most = 100;
  CHECK(world.Get({.name = "1/n"}, &later).outcome == Outcome::kCancelled);
}

TEST_CASE("a request whose deadline has passed is late, and does nothing") {
  ObjectWorld world(EVERY_KIND_OF_STORE());
  ObjectAnswer put, got;
  TextObjectSink sink;
  world.store().Put({.name = "1/n", .deadline = world.Now()}, world.Note(&put));
  world.Await();
  CHECK(put.outcome == Outcome::kLate);
  CHECK(world.Get({.name = "1/n", .deadline = world.Now()}, &sink).outcome == Outcome::kLate);
  CHECK(world.Get({.name = "1/n"}, &sink).outcome == Outcome::kAbsent);
}

TEST_CASE("each request is answered once, cancelled or not, also when the store goes") {
  std::vector<std::atomic<int>> answered(300);
  {
    ObjectWorld world(EVERY_KIND_OF_STORE());
    const std::string body = Pattern(100'000, 3);
    CHECK(world.Put("1/n", body).ok());
    std::vector<TextObjectSink> sinks(300);
    for (size_t i = 0; i < 300; ++i) {
      const auto done = [&answered, i](ObjectAnswer) { ++answered[i]; };
      const std::string name = absl::StrCat("1/", i);
      const ObjectCall call =
          i % 3 == 0   ? world.store().Put({.name = name, .body = {AsBytes(body)}}, done)
          : i % 3 == 1 ? world.store().Get({.name = "1/n"}, &sinks[i], done)
                       : world.store().Delete({.name = name}, done);
      if (i % 5 == 0) world.store().Cancel(call);
    }
    world.DestroyStore();
    for (size_t i = 0; i < 300; ++i) {
      CAPTURE(i);
      CHECK(answered[i] == 1);
    }
  }
}

TEST_CASE("a directory takes no name that leads out of it, and shows nothing half made") {
  const ScratchDir directory;
  ThreadPool threads("directory", 1);
  REQUIRE(MarkSharedDirectory(directory.path(), "tests").ok());
  std::vector<ObjectAnswer> answers(6);
  const std::string body = "hello";
  {
    const auto store = std::make_unique<DirectoryStore>(
        DirectoryStoreOptions{.path = directory.path()}, &threads, RealClock(), RealRandom());
    const char* const names[] = {"../x", "1/../../x", "/x", "1//x", ".new/x", "1/.x"};
    for (size_t i = 0; i < 6; ++i) {
      store->Put({.name = names[i], .body = {AsBytes(body)}},
                 [&, i](ObjectAnswer answer) { answers[i] = std::move(answer); });
      AwaitTurn(threads);
      CHECK(answers[i].outcome == Outcome::kRefused);
    }
    store->Put({.name = "1/x", .body = {AsBytes(body)}, .crc32c = 1},
               [&](ObjectAnswer answer) { answers[0] = std::move(answer); });
    AwaitTurn(threads);
    CHECK(answers[0].error.code == "BadDigest");
    CHECK(store->health().writable());
  }
  size_t files = 0;
  for (const auto& at : std::filesystem::recursive_directory_iterator(directory.path())) {
    files += at.is_regular_file();
  }
  CHECK(files == 1);  // the mark
}

}  // namespace kvkeep
