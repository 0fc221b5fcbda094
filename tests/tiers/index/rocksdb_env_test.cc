// An index beside one whose disk hangs.
#include "tiers/index/rocksdb_env.h"

#include <absl/cleanup/cleanup.h>
#include <fcntl.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/scratch_dir.h"
#include "tests/tiers/index/hanging_tables.h"
#include "tests/tiers/index/records.h"
#include "tiers/base/mutex.h"
#include "tiers/base/unique_fd.h"
#include "tiers/index/rocksdb_index.h"

namespace kvkeep {
namespace {

const Uuid kOfEnv = *Uuid::FromBytes("this device");
constexpr uint32_t kRecordsOfABuffer = 500;  // about, with 64 KiB

// Longer than any delay of a busy machine, and shorter than a disk hangs.
bool InTime(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // for RocksDB's threads
  }
  return true;
}

std::unique_ptr<ChunkIndex> Make(const std::string& dir,
                                 std::shared_ptr<rocksdb::FileSystem> files = nullptr) {
  absl::StatusOr<std::unique_ptr<ChunkIndex>> index = OpenRocksDbIndex(
      dir, kOfEnv,
      {.create = true, .write_buffer_bytes = 64 * kKiB, .file_system = std::move(files)});
  INFO(index.status().ToString());
  REQUIRE(index.ok());
  return *std::move(index);
}

// Commits this many, a buffer at a time. Returns false if the index took no more.
bool AddAll(ChunkIndex& index, uint32_t buffers) {
  for (uint32_t buffer = 0; buffer < buffers; ++buffer) {
    IndexBatch batch;
    const uint32_t first = buffer * kRecordsOfABuffer;
    for (uint32_t n = 0; n < kRecordsOfABuffer; ++n) {
      batch.adds.push_back(NumberedRecord(first + n));
    }
    absl::Status committed;
    const bool in_time = InTime([&] {
      committed = index.Commit(batch);
      return !absl::IsUnavailable(committed);
    });
    INFO(committed.ToString());
    if (!in_time) return false;
    REQUIRE(committed.ok());
  }
  return true;
}

// A sync may wait out a stall, so it has a thread. If it does not end the disk goes on.
bool Syncs(ChunkIndex& index, HangingTables& disk) {
  std::future<absl::Status> synced =
      std::async(std::launch::async, [&index] { return index.Sync({}); });
  const bool in_time =
      InTime([&] { return synced.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  if (!in_time) disk.GoOn();
  return in_time && synced.get().ok();
}

int ThreadsNamed(const std::string& wanted) {
  int found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    found += name == wanted ? 1 : 0;
  }
  return found;
}

}  // namespace

TEST_CASE("a flush that hangs on one device holds up no other's commits and syncs") {
  const ScratchDir scratch;
  const auto disk = std::make_shared<HangingTables>();
  const auto hung = Make(scratch / "hung", disk);
  const auto well = Make(scratch / "well");
  const absl::Cleanup go_on = [&] { disk->GoOn(); };
  disk->Hang("kvkeep-flush");
  REQUIRE(AddAll(*hung, 2));
  REQUIRE(InTime([&] { return disk->hanging() > 0; }));
  CHECK(AddAll(*well, 20));
  CHECK(Syncs(*well, *disk));
  CHECK(ReadAll(*well).size() == 20 * kRecordsOfABuffer);
  CHECK(disk->hanging() > 0);
  disk->GoOn();
  CHECK(Syncs(*hung, *disk));
  CHECK(ReadAll(*hung).size() == 2 * kRecordsOfABuffer);
}

TEST_CASE("a compaction that hangs on one device holds up no other's commits and syncs") {
  const ScratchDir scratch;
  const auto disk = std::make_shared<HangingTables>();
  const auto hung = Make(scratch / "hung", disk);
  const auto well = Make(scratch / "well");
  const absl::Cleanup go_on = [&] { disk->GoOn(); };
  disk->Hang("kvkeep-compact");
  REQUIRE(AddAll(*hung, 4));
  REQUIRE(InTime([&] { return disk->hanging() > 0; }));
  // More than an index takes without compaction.
  CHECK(AddAll(*well, 60));
  CHECK(Syncs(*well, *disk));
  CHECK(disk->hanging() > 0);
}

TEST_CASE("what an open finds to compact waits for the first write") {
  const ScratchDir scratch;
  // Each open writes a table of the log's contents; two are to be compacted, unless that was done
  // before the index was closed.
  std::unique_ptr<ChunkIndex> index;
  for (int opens = 0; opens < 50; ++opens) {
    REQUIRE(AddAll(*Make(scratch / "index"), 1));
    index = Make(scratch / "index");
    if (index->stats().pending_compaction_bytes > 0) break;
    index = nullptr;
  }
  REQUIRE(index != nullptr);
  CHECK(index->stats().records >= kRecordsOfABuffer);
  const uint64_t before = index->stats().table_bytes;
  CHECK(ReadAll(*index).size() == kRecordsOfABuffer);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // otherwise it would have been soon
  CHECK(index->stats().table_bytes == before);
  REQUIRE(index->Commit({.adds = {NumberedRecord(1)}}).ok());
  CHECK(InTime([&] { return index->stats().table_bytes < before; }));
}

TEST_CASE("an index opens while another one's directory cannot be locked yet") {
  const ScratchDir scratch;
  Make(scratch / "hung") = nullptr;
  // An open of the file waits until the lease is given back.
  const UniqueFd lease(open((scratch / "hung/LOCK").c_str(), O_RDWR | O_CLOEXEC));
  const auto handler = std::signal(SIGIO, SIG_IGN);
  REQUIRE(fcntl(lease.get(), F_SETLEASE, F_WRLCK) == 0);
  auto hung = std::async(std::launch::async,
                         [&] { return OpenRocksDbIndex(scratch / "hung", kOfEnv, {}).status(); });
  REQUIRE(InTime([&] { return fcntl(lease.get(), F_GETLEASE) != F_WRLCK; }));
  CHECK(AddAll(*Make(scratch / "well"), 1));
  CHECK(hung.wait_for(std::chrono::seconds(0)) != std::future_status::ready);
  CHECK(fcntl(lease.get(), F_SETLEASE, F_UNLCK) == 0);
  CHECK(hung.get().ok());
  std::signal(SIGIO, handler);
}

TEST_CASE("the threads of an index end with it") {
  const ScratchDir scratch;
  auto index = Make(scratch / "index");
  CHECK(AddAll(*index, 10));
  // A thread names itself, and the kernel releases it, in its own time.
  CHECK(InTime([] { return ThreadsNamed("kvkeep-flush") == 1; }));
  CHECK(InTime([] { return ThreadsNamed("kvkeep-compact") == 1; }));
  index = nullptr;
  CHECK(InTime([] { return ThreadsNamed("kvkeep-flush") == 0; }));
  CHECK(InTime([] { return ThreadsNamed("kvkeep-compact") == 0; }));
}

TEST_CASE("queued jobs are taken back by their tag, and run in order else") {
  using Order = std::vector<int>;
  struct Numbered {
    Order* order;
    int number;
  };
  Order ran, taken;
  std::promise<void> go_on;
  int mine = 0, others = 0;  // tags
  std::vector<Numbered> numbered;
  for (int n = 0; n < 4; ++n) numbered.push_back({&ran, n});
  const auto note = [](void* argument) {
    auto* const job = static_cast<Numbered*>(argument);
    job->order->push_back(job->number);
  };
  std::promise<void> began;
  std::pair<std::promise<void>*, std::future<void>> gate{&began, go_on.get_future()};
  {
    BackgroundThread thread("kvkeep-test");  // ends before what its jobs look at
    thread.Post({.run = [](void* argument) {
                   auto* const at = static_cast<decltype(gate)*>(argument);
                   at->first->set_value();
                   at->second.wait();
                 },
                 .argument = &gate,
                 .tag = &mine,
                 .taken_back = nullptr});
    began.get_future().wait();
    for (Numbered& job : numbered) {
      const bool is_mine = job.number % 2 == 0;
      thread.Post({.run = note,
                   .argument = &job,
                   .tag = is_mine ? &mine : &others,
                   .taken_back = is_mine ? +note : nullptr});
    }
    CHECK(thread.queued() == 4);
    for (Numbered& job : numbered) job.order = job.number % 2 == 0 ? &taken : &ran;
    CHECK(thread.TakeBack(&mine) == 2);  // not the one that runs
    CHECK(thread.queued() == 2);
    go_on.set_value();
  }
  CHECK(taken == Order{0, 2});
  CHECK(ran == Order{1, 3});
}

TEST_CASE("jobs that are held run in order when they are released, or are taken back") {
  struct Ran {
    Mutex mu;
    std::vector<int> order;
  } ran;
  struct Numbered {
    Ran* ran;
    int number;
  };
  std::vector<Numbered> numbered;
  for (int n = 0; n < 4; ++n) numbered.push_back({&ran, n});
  const auto note = [](void* argument) {
    auto* const job = static_cast<Numbered*>(argument);
    MutexLock lock(&job->ran->mu);
    job->ran->order.push_back(job->number);
  };
  const auto all = [&ran] {
    MutexLock lock(&ran.mu);
    return ran.order;
  };
  int tag = 0, other = 0;
  BackgroundThread thread("kvkeep-test");
  thread.Hold();
  for (Numbered& job : numbered) {
    thread.Post({.run = note,
                 .argument = &job,
                 .tag = job.number == 1 ? &other : &tag,
                 .taken_back = nullptr});
  }
  CHECK(thread.TakeBack(&other) == 1);
  CHECK(thread.queued() == 3);
  CHECK(all().empty());
  thread.Release();
  CHECK(InTime([&] { return all().size() == 3; }));
  CHECK(all() == std::vector<int>{0, 2, 3});
  thread.Post({.run = note, .argument = &numbered[1], .tag = &tag, .taken_back = nullptr});
  CHECK(InTime([&] { return all().size() == 4; }));
}

}  // namespace kvkeep
