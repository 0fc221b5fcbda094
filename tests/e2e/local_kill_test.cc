// Workers on the local path that die at every point of their life: the daemon has everything back
// at once, and no other client notices.
#include <absl/strings/str_cat.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <iterator>
#include <map>
#include <sstream>
#include <thread>

#include "tests/e2e/descriptors.h"
#include "tests/e2e/worker_process.h"

namespace kvkeep::e2e {
namespace {

using client::GetStatus;
using std::chrono::steady_clock;

constexpr size_t kAtOnce = 16;
constexpr size_t kKills = kSanitized ? 64 : 500;
constexpr size_t kChunkBytes = 128 << 10;
constexpr milliseconds kGiveBack{100};

// A point of client/local/test_point.h, and how often a round passes there.
struct Point {
  const char* name;
  int most;  // the first ones are passed once in a life
};
constexpr Point kPoints[] = {
    {"connected", 1},      {"hello-sent", 1},     {"welcomed", 1},    {"segments-mapped", 1},
    {"namespace-open", 1}, {"staging-mapped", 1}, {"get-sent", 9},    {"get-leased", 9},
    {"piece-wait", 5},     {"staging-filled", 9}, {"put-sent", 9},    {"put-copied", 3},
    {"release-queued", 9}, {"release-sent", 5},   {"part-filled", 5},
};

// Everything that a session can hold, as the daemon counts it.
struct Held {
  std::map<std::string, uint64_t> what;
  bool operator==(const Held&) const = default;
};

Held HeldNow(const Site& site) {
  const v1::StatusResponse status = site.Status();
  Held held;
  held.what["leased bytes"] = status.g2().leased_bytes();
  held.what["reserved bytes"] = status.g2().reserved_bytes();
  held.what["sessions"] = static_cast<uint64_t>(status.sessions_size());
  for (const char* gauge : {"local_open_connections", "local_puts_copying", "local_progress_words",
                            "local_staging_bytes", "local_registered_bytes"}) {
    held.what[gauge] = status.counters().at(gauge);
  }
  return held;
}

std::string Describe(const Held& held) {
  std::ostringstream text;
  for (const auto& [name, value] : held.what) text << name << " " << value << ", ";
  return text.str();
}

// Without shared memory: the arena, staging memory.
uint64_t PrivateBytes(uint64_t pid) {
  std::istringstream lines(ReadFile(absl::StrCat("/proc/", pid, "/status")));
  for (std::string word; lines >> word;) {
    if (word != "RssAnon:") continue;
    uint64_t kib = 0;
    lines >> kib;
    return kib << 10;
  }
  return 0;
}

// Another worker, with leases that it keeps, which reads and compares all the time.
class Bystander {
 public:
  Bystander(const Site& site, std::vector<TestChunk> chunks)
      : engine_(site, {.name = "bystander"}), chunks_(std::move(chunks)) {
    REQUIRE(engine_.client().path().path == client::Path::kLocal);
    REQUIRE(engine_.PutAll(chunks_));
    const std::vector<ChunkKey> keys = KeysOf(chunks_);
    auto found =
        engine_.client().Lookup(engine_.ns(), keys, {.lease = client::LeaseMode::kLeadingRun});
    REQUIRE(found.ok());
    REQUIRE(found->leased_keys == chunks_.size());
    lease_ = std::move(found->lease);
    thread_ = std::thread([this] { Run(); });
  }
  ~Bystander() { Stop(); }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  std::atomic<uint64_t> gets{0}, misses{0};
  uint64_t wrong_bytes() const { return engine_.wrong_bytes; }
  bool alive() const { return lease_.alive(); }

 private:
  void Run() {
    while (!stop_) {
      const uint32_t i = static_cast<uint32_t>(gets++ % chunks_.size());
      misses += engine_.Get(chunks_[i], &lease_, i) != GetStatus::kHit;
      misses += engine_.Find({chunks_[i]}).g2 != 1;
      std::this_thread::sleep_for(milliseconds(1));  // leaves the cores to the other processes
    }
  }

  Engine engine_;
  const std::vector<TestChunk> chunks_;
  client::Lease lease_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

Settings KillSettings() {
  Settings settings;
  settings.local = true;
  // Staging memory for a batch and the bystander, but no room for the cold chunks.
  settings.g2 = "144MiB";
  settings.limits = "  staging_per_session: 6MiB\n  staging: 75%\n";
  settings.devices = {{.capacity = "1GiB"}};
  return settings;
}

// Runs a batch of workers to their ends. Returns how each wrong end happened.
std::string RunBatch(const Site& site, size_t first, size_t count,
                     const std::vector<TestChunk>& warm, const std::vector<TestChunk>& cold) {
  std::vector<WorkerProcess> workers;
  std::vector<std::string> points;
  for (size_t i = first; i < first + count; ++i) {
    const Point& point = kPoints[i % std::size(kPoints)];
    const int nth = 1 + static_cast<int>(i / std::size(kPoints)) % point.most;
    points.push_back(absl::StrCat(point.name, " ", nth));
    workers.emplace_back(
        site, WorkerProcess::Options{.warm = warm, .cold = cold, .point = point.name, .nth = nth});
  }
  std::string wrong;
  for (size_t i = 0; i < workers.size(); ++i) {
    const int end = workers[i].AwaitEnd();
    if (end != SIGKILL) absl::StrAppend(&wrong, points[i], " ended with ", end, "; ");
  }
  return wrong;
}

}  // namespace

TEST_CASE("workers killed at every point give back all they held, and disturb nobody") {
  Settings settings = KillSettings();
  settings.dumpable = true;  // its descriptors are counted
  Site site(settings);
  site.Start();
  const std::vector<TestChunk> warm = Chunks(1, 4, kChunkBytes);
  const std::vector<TestChunk> cold = Chunks(1'000, 2400, kChunkBytes);
  {
    Engine engine(site);
    REQUIRE(engine.PutAll(cold));
    REQUIRE(engine.PutAll(warm));
    REQUIRE(site.AwaitClean());
  }
  REQUIRE(Eventually([&] { return site.Status().sessions_size() == 0; }));
  Bystander bystander(site, Chunks(100, 8, 1 << 20));
  REQUIRE(site.AwaitClean());
  // The bystander's client gives its own back, as it puts no more.
  REQUIRE(Eventually([&] { return site.Counter("local_staging_bytes") == 0; }));
  const Held before = HeldNow(site);
  const uint64_t pid = site.Status().pid();

  Descriptors descriptors;
  uint64_t resident = 0;
  std::vector<double> times_ms;
  for (size_t killed = 0; killed < kKills;) {
    const size_t count = std::min(kAtOnce, kKills - killed);
    const std::string wrong = RunBatch(site, killed, count, warm, cold);
    const auto dead = steady_clock::now();
    CHECK(wrong == "");
    killed += count;
    Held now;
    const bool back = Eventually([&] { return (now = HeldNow(site)) == before; });
    times_ms.push_back(
        std::chrono::duration<double, std::milli>(steady_clock::now() - dead).count());
    INFO("after " << killed << " kills: " << Describe(now) << "before: " << Describe(before));
    REQUIRE(back);
    if (killed == 4 * kAtOnce) {  // threads, pools and caches exist now
      descriptors = DescriptorsOf(pid, site.path(""));
      resident = PrivateBytes(pid);
    }
  }
  bystander.Stop();
  std::sort(times_ms.begin(), times_ms.end());
  WARN(kKills << " kills, all back after " << times_ms[times_ms.size() / 2] << " ms (median of "
              << times_ms.size() << " batches), " << times_ms.back()
              << " ms (slowest); bystander: " << bystander.gets << " gets");
  // The slowest may have waited for a core, which says nothing about the daemon.
  CHECK((kSanitized || times_ms[times_ms.size() * 9 / 10] < kGiveBack.count()));
  CHECK(bystander.gets > 0);
  CHECK(bystander.misses == 0);
  CHECK(bystander.wrong_bytes() == 0);
  CHECK(bystander.alive());
  const bool flat =
      Eventually([&] { return DescriptorsOf(pid, site.path("")).count <= descriptors.count; });
  INFO(descriptors.names << "then\n" << DescriptorsOf(pid, site.path("")).names);
  CHECK(flat);
  INFO("private memory: " << resident << " bytes, then " << PrivateBytes(pid));
  CHECK((kSanitized || PrivateBytes(pid) < resident + (48 << 20)));
  CHECK(site.Counter("local_arriving_chunks") > 0);
  CHECK(site.Counter("sessions_opened") == site.Counter("sessions_closed") + 1);
  CHECK(site.Counter("sessions_revoked") == 0);
}

}  // namespace kvkeep::e2e
