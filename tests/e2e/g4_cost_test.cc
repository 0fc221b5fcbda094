// The cost of a bucket to calls that the node can answer alone: nothing measurable, whatever the
// bucket does.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "tests/e2e/bucket_server.h"
#include "tests/e2e/latencies.h"

namespace kvkeep::e2e {
namespace {

constexpr size_t kSmallBytes = 4'000;
constexpr size_t kPrompt = 256;  // keys
constexpr size_t kColdChunks = 400;
constexpr int kRounds = 6;
constexpr auto kSegment = std::chrono::milliseconds(kSanitized ? 200 : 700);
constexpr double kAsFast = 1.2;
constexpr int kAttempts = 6;

// Returns the names of a daemon's threads.
std::multiset<std::string> ThreadsOf(const Site& site) {
  std::multiset<std::string> names;
  const std::string tasks = absl::StrCat("/proc/", site.Status().pid(), "/task");
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    names.insert(ReadFile(task.path() / "comm"));
  }
  return names;
}

// In microseconds.
struct NodeTimes {
  Latencies lookups, hits, cold;
};

class TimedNode {
 public:
  // `g4`: its config; empty: none.
  explicit TimedNode(const std::string& g4, client::PathChoice path)
      : site_({.g2 = "64MiB", .segment_bytes = "16MiB", .devices = {{.capacity = "512MiB"}},
               .local = true}),
        prompt_(Chunks(1, kPrompt, kSmallBytes)),
        cold_(Chunks(10'000, kColdChunks, 300'000)) {
    site_.settings.extra = g4;
    site_.Start();
    engine_ = std::make_unique<Engine>(site_, Engine::Options{.path = path});
    REQUIRE(engine_->PutAll(cold_, {.durable = true}));
    REQUIRE(engine_->PutAll(prompt_));
    REQUIRE(engine_->Hits(prompt_) == prompt_.size());
  }
  // A lookup and lease of a prompt that is all here, as an engine makes it; a get of one of its
  // chunks; a get of a chunk that only G3 may have.
  void Measure(NodeTimes& times) {
    const auto end = std::chrono::steady_clock::now() + kSegment;
    while (std::chrono::steady_clock::now() < end) {
      Note(times.lookups, [&] {
        const auto found = engine_->client().Lookup(
            engine_->ns(), KeysOf(prompt_),
            {.lease = client::LeaseMode::kLeadingRun, .remote_wait = milliseconds(50)});
        return found.ok() && found->leased_keys == kPrompt;
      });
      const uint64_t n = next_++;
      Note(times.hits, [&] {
        return engine_->Get(prompt_[n % kPrompt]) == client::GetStatus::kHit;
      });
      Note(times.cold, [&] {
        return engine_->Get(cold_[n % kColdChunks]) == client::GetStatus::kHit;
      });
    }
  }
  uint64_t wrong_bytes() const { return engine_->wrong_bytes; }
  Site& site() { return site_; }

 private:
  template <typename Call>
  void Note(Latencies& took, Call call) {
    const auto began = std::chrono::steady_clock::now();
    CHECK(call());
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - began;
    took.all.push_back(time.count());
  }

  Site site_;
  const std::vector<TestChunk> prompt_, cold_;
  std::unique_ptr<Engine> engine_;
  uint64_t next_ = 0;
};

struct Beside {
  const char* what;
  double p50 = 0, p99 = 0;
  std::string text;

  Beside(const char* call, Latencies with, Latencies without)
      : what(call), p50(with.At(0.5) / without.At(0.5)), p99(with.At(0.99) / without.At(0.99)) {
    text = absl::StrFormat("%s: p50 %.0f us, without G4 %.0f (%.2f), p99 %.0f, without %.0f (%.2f)",
                           what, with.At(0.5), without.At(0.5), p50, with.At(0.99),
                           without.At(0.99), p99);
  }
};

}  // namespace

TEST_CASE("without g4 in its config a daemon has none of its threads") {
  const FleetFiles fleet;
  BucketServer bucket;
  Site without({.g2 = "64MiB"}), with({.g2 = "64MiB"});
  with.settings.extra = fleet.Config(bucket, "1MiB");
  without.Start();
  with.Start();
  CHECK(ThreadsOf(with).count("kvkeep-http\n") > 0);
  CHECK(ThreadsOf(without).count("kvkeep-http\n") == 0);
  CHECK(with.Status().has_g4());
  CHECK_FALSE(without.Status().has_g4());
}

TEST_CASE("what the node has is answered as fast with a bucket as without, also one that hangs",
          "[times]") {
  const auto path = GENERATE(client::PathChoice::kLocal, client::PathChoice::kGrpc);
  const Bucket state = GENERATE(Bucket::kServes, Bucket::kHangs);
  const FleetFiles fleet;
  BucketServer bucket;
  TimedNode with(fleet.Config(bucket, "1MiB"), path), without("", path);
  // Asks all the time for a prompt that does not exist.
  bucket.state = state;
  Engine asks(with.site());
  REQUIRE(asks.client().Lookup(asks.ns(), KeysOf(Chunks(99'000, 64, kSmallBytes)),
                               {.remote_wait = milliseconds(100)}).ok());
  // For each kind of call, whether some attempt was as fast, as each has its own bad moments.
  std::map<std::string, bool> as_fast;
  const auto all_are = [&as_fast] {
    return !as_fast.empty() && std::all_of(as_fast.begin(), as_fast.end(),
                                           [](const auto& one) { return one.second; });
  };
  for (int attempt = 0; attempt < kAttempts && !all_are(); ++attempt) {
    NodeTimes on, off;
    for (int round = 0; round < kRounds; ++round) {
      without.Measure(off);
      with.Measure(on);
    }
    for (const Beside& beside : {Beside("lookups of 256 keys", on.lookups, off.lookups),
                                 Beside("gets of G2", on.hits, off.hits),
                                 Beside("gets of G3", on.cold, off.cold)}) {
      WARN((path == client::PathChoice::kLocal ? "local, " : "gRPC, ")
           << (state == Bucket::kServes ? "a bucket that serves, " : "one that hangs, ")
           << beside.text);
      as_fast[beside.what] |= beside.p99 <= kAsFast;
    }
  }
  for (const auto& [what, was] : as_fast) {
    INFO(what);
    CHECK(was);
  }
  CHECK(with.wrong_bytes() == 0);
}

}  // namespace kvkeep::e2e
