// The client library's Watch, and the tool's verb, against the real daemon: a reader that applies
// their events knows what a lookup finds, whatever happens to chunks and to the daemon.
#include "client/watch.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <signal.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/e2e/engine.h"
#include "tests/e2e/shell.h"
#include "tiers/base/random.h"

namespace kvkeep::e2e {
namespace {

using client::Watch;
using client::WatchBegin;
using client::WatchEvent;
using client::WatchNews;

constexpr client::Deadline kLong{20'000};
constexpr size_t kWatchedChunkBytes = 100'000;

// A watcher's knowledge.
class Picture {
 public:
  explicit Picture(const Site& site) {
    auto opened = Watch::Open({.client = {.endpoint = site.endpoint(), .default_deadline = kLong},
                               .ns = Engine::DefaultSpec()});
    REQUIRE(opened.ok());
    watch_ = *std::move(opened);
  }

  // Reads until `condition` holds.
  template <typename F>
  void Until(F condition) {
    while (!condition()) {
      const absl::StatusOr<WatchNews> news = watch_->Next(kLong);
      if (absl::IsUnavailable(news.status())) {
        ++losses;
        whole = false;
        continue;
      }
      INFO(news.status());
      REQUIRE(news.ok());
      Apply(*news);
    }
  }
  size_t in(Tier tier, const std::vector<TestChunk>& chunks) const {
    return static_cast<size_t>(std::count_if(
        chunks.begin(), chunks.end(), [&](const TestChunk& chunk) { return Has(chunk, tier); }));
  }
  bool Has(const TestChunk& chunk, Tier tier) const {
    const auto found = there_.find({Key(chunk.number), tier});
    return found != there_.end() && found->second;
  }

  std::map<WatchBegin, int> begins;  // how often
  bool whole = false;
  int losses = 0;

 private:
  void Apply(const WatchNews& news) {
    if (news.begins != WatchBegin::kNo) {
      ++begins[news.begins];
      whole = false;
      there_.clear();
    }
    for (const WatchEvent& event : news.events) there_[{event.key, event.tier}] = event.stored;
    whole = whole || news.snapshot_end;
  }

  std::unique_ptr<Watch> watch_;
  std::map<std::pair<ChunkKey, Tier>, bool> there_;
};

// Returns whether each of these chunks is where a lookup finds it.
bool EqualsLookups(const Picture& picture, Engine& engine, const std::vector<TestChunk>& chunks) {
  auto found = engine.client().Lookup(engine.ns(), KeysOf(chunks));
  if (!found.ok()) return false;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (picture.Has(chunks[i], Tier::kG2) != found->in_g2(i)) return false;
    if (picture.Has(chunks[i], Tier::kG3) != found->in_g3(i)) return false;
  }
  return true;
}

// `kvkeep watch --json` as a process, read line by line.
class WatchTool {
 public:
  explicit WatchTool(const Site& site)
      : pipe_(popen(
            absl::StrCat("echo $$; exec '" KVKEEP_PATH "' --json --endpoint ", site.endpoint(),
                         " watch --namespace e2e --tokens-per-chunk 256 2>/dev/null")
                .c_str(),
            "r")) {
    REQUIRE(pipe_ != nullptr);
    REQUIRE(absl::SimpleAtoi(Line(), &pid_));
  }
  ~WatchTool() {
    kill(pid_, SIGTERM);
    pclose(pipe_);
  }
  // Returns the next line of this event; skips lines before it.
  nlohmann::json Await(const std::string& event) {
    while (true) {
      nlohmann::json object = nlohmann::json::parse(Line());
      if (object["event"] == event) return object;
    }
  }

 private:
  std::string Line() {
    std::string line;
    for (int c = fgetc(pipe_); c != '\n'; c = fgetc(pipe_)) {
      REQUIRE(c != EOF);
      line.push_back(static_cast<char>(c));
    }
    return line;
  }

  std::FILE* const pipe_;
  pid_t pid_ = 0;
};

TEST_CASE("who watches knows what lookups find, after puts, evictions, deletes and kill -9") {
  Site site;
  site.Start();
  const std::vector<TestChunk> chunks = Chunks(1, 60, kWatchedChunkBytes);
  auto engine = std::make_unique<Engine>(site);
  REQUIRE(engine->PutAll(Chunks(1, 10, kWatchedChunkBytes)));
  REQUIRE(site.AwaitKept());
  Picture picture(site);
  picture.Until([&] { return picture.whole; });
  CHECK(picture.begins[WatchBegin::kFirst] == 1);

  const uint64_t seed = RealRandom()->NextU64();
  CAPTURE(seed);
  uint64_t dice = seed;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 30; ++i) {
      dice = dice * 6364136223846793005 + 1442695040888963407;
      const TestChunk& chunk = chunks[(dice >> 33) % chunks.size()];
      if ((dice >> 60) < 12) {
        REQUIRE(engine->PutAll({chunk}));
      } else {
        REQUIRE(engine->client().Delete(engine->ns(), KeysOf({chunk})).ok());
      }
    }
    REQUIRE(site.AwaitClean());
    REQUIRE(site.admin()
                ->Evict([] {
                  v1::EvictRequest request;
                  request.set_bytes(5 * kWatchedChunkBytes);
                  return request;
                }())
                .ok());
    picture.Until([&] { return picture.whole && EqualsLookups(picture, *engine, chunks); });
    CHECK(picture.losses == round);
    engine.reset();
    site.Kill();
    picture.Until([&] { return picture.losses == round + 1; });
    site.Start();
    engine = std::make_unique<Engine>(site);
    picture.Until([&] { return picture.whole && EqualsLookups(picture, *engine, chunks); });
    CHECK(picture.begins[WatchBegin::kNewDaemon] == round + 1);
    CHECK(picture.in(Tier::kG2, chunks) == 0);
    CHECK(picture.in(Tier::kG3, chunks) > 0);
  }
}

TEST_CASE("the tool's watch tells of what is there, of changes, of a daemon gone and come back") {
  Site site;
  site.Start();
  const std::vector<TestChunk> chunks = Chunks(1, 3, kWatchedChunkBytes);
  {
    Engine engine(site);
    REQUIRE(engine.PutAll({chunks[0]}));
    REQUIRE(site.AwaitClean());
    WatchTool tool(site);
    const nlohmann::json begins = tool.Await("begins");
    CHECK(begins["why"] == "first");
    const nlohmann::json stored = tool.Await("stored");
    CHECK(stored["key"] == Key(1).ToHex());
    CHECK(stored["part"] == 0);
    tool.Await("snapshot_end");
    REQUIRE(engine.PutAll({chunks[1]}));
    CHECK(tool.Await("stored")["key"] == Key(2).ToHex());
    REQUIRE(engine.client().Delete(engine.ns(), KeysOf({chunks[0]})).ok());
    CHECK(tool.Await("removed")["key"] == Key(1).ToHex());
    site.Kill();
    tool.Await("away");
    site.Start();
    const nlohmann::json again = tool.Await("begins");
    CHECK(again["why"] == "new_daemon");
    CHECK(again["epoch"] != begins["epoch"]);
  }
  const std::string tool = absl::StrCat("'" KVKEEP_PATH "' --endpoint ", site.endpoint(),
                                        " watch --namespace e2e --tokens-per-chunk 256");
  Engine engine(site);
  REQUIRE(engine.PutAll({chunks[2]}));
  REQUIRE(site.AwaitClean());
  const Outcome all = RunShell(tool + " --snapshot");
  CHECK(all.status == 0);
  CHECK(all.output.find("stored  G2 " + Key(3).ToHex() + " part 0") != std::string::npos);
  CHECK(all.output.find("stored  G3 " + Key(3).ToHex() + " part 0") != std::string::npos);
  CHECK(RunShell(tool + " --count 1 --json").output.find("snapshot_end") == std::string::npos);
  CHECK(RunShell(tool + " --tenant nobody").status == 1);
  CHECK(site.Stop().exit_status == 0);
  CHECK(RunShell(tool + " --snapshot").status == 4);
}

}  // namespace
}  // namespace kvkeep::e2e
