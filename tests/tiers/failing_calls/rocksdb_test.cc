// An index, and a rebuild of one, whichever of RocksDB's calls fails. Each attempt is a process of
// its own, as the rest of a database stays until the process ends after a failed write.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/fakes/failing_calls.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/tiers/failing_calls/descriptors.h"
#include "tests/tiers/fsck/store_on_disk.h"
#include "tests/tiers/index/records.h"
#include "tiers/index/rocksdb_index.h"

namespace kvkeep {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kRebuilt = 3;
constexpr uint32_t kRecords = 3;
constexpr int kNoneFailed = 77;  // exit status
const Uuid kDevice = *Uuid::FromBytes("this device");
const Uuid kBoot = *Uuid::FromBytes("this boot");

// Returns a value from a child's environment.
std::string Told(const char* name) {
  const char* const value = std::getenv(name);
  REQUIRE(value != nullptr);
  return value;
}

CallFault ToldFault() {
  return {.number = std::stoull(Told("KVKEEP_TEST_NUMBER")),
          .only = Told("KVKEEP_TEST_CALL"),
          .error = EIO,
          .and_later = Told("KVKEEP_TEST_LATER") == "1",
          .of_rocksdb = true};
}

// Runs one hidden test case. An assertion of RocksDB's ends the child, which the status reports.
int RunChild(const char* test_case, const std::string& dir, const CallFault& fault) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core{};
    setrlimit(RLIMIT_CORE, &no_core);
    setenv("KVKEEP_TEST_DIR", dir.c_str(), 1);
    setenv("KVKEEP_TEST_CALL", fault.only.c_str(), 1);
    setenv("KVKEEP_TEST_NUMBER", absl::StrCat(fault.number).c_str(), 1);
    setenv("KVKEEP_TEST_LATER", fault.and_later ? "1" : "0", 1);
    execl("/proc/self/exe", "failing_calls_test", test_case, nullptr);
    _exit(1);
  }
  int how = 0;
  REQUIRE(waitpid(child, &how, 0) == child);
  return how;
}

// Makes the first call of a name fail, or it and all later ones, then the second, until a child
// makes no more such calls; for each name that matters. Returns how many attempts had a failed
// call.
uint64_t FailEachOfRocksDb(const std::function<int(const CallFault&)>& attempt) {
  uint64_t failed = 0;
  for (const std::string call : {"write", "fdatasync", "fsync", "rename"}) {
    for (const bool and_later : {false, true}) {
      if (and_later && call != "write") break;
      for (uint64_t number = 0;; ++number, ++failed) {
        INFO(call << " " << number << (and_later ? " and later" : ""));
        const int how = attempt({.number = number, .only = call, .and_later = and_later});
        REQUIRE(WIFEXITED(how));
        if (WEXITSTATUS(how) == kNoneFailed) break;
        REQUIRE(WEXITSTATUS(how) == 0);
      }
    }
  }
  return failed;
}

// Ends a child's test case.
void JudgeChild(const absl::Status& status, const std::string& failed) {
  INFO(failed << ": " << status.ToString());
  CHECK((status.ok() || IsOneLine(status)));
  if (!failed.empty()) return;
  CHECK(status.ok());
  std::exit(status.ok() ? kNoneFailed : 1);
}

std::string AcknowledgedFile(const std::string& dir) { return dir + ".acknowledged"; }

// Writes while there are records that were reported as synced.
void WriteAcknowledged(const std::string& dir, uint32_t count) {
  std::ofstream(AcknowledgedFile(dir)) << std::string(count, '.');
}

// Records, each synced.
absl::Status Work(const std::string& dir) {
  auto index = OpenRocksDbIndex(dir, kDevice, {.create = true});
  if (!index.ok()) return index.status();
  absl::Status worst;
  for (uint32_t n = 0; n < kRecords; ++n) {
    absl::Status status = (*index)->Commit({.adds = {NumberedRecord(n)}});
    if (status.ok()) status = (*index)->Sync({kBoot, CommitSequence(n)});
    if (status.ok()) {
      WriteAcknowledged(dir, n + 1);
    } else {
      worst = status;
    }
  }
  worst.Update((*index)->PutMeta("name", "value"));
  return worst;
}

}  // namespace

TEST_CASE("child: works on an index", "[.child]") {
  const std::string dir = Told("KVKEEP_TEST_DIR");
  absl::Status worked;
  std::string failed;
  {
    const FailingCalls calls(ToldFault());
    worked = Work(dir);
    failed = calls.failed();
  }
  JudgeChild(worked, failed);
}

TEST_CASE("an index one of whose calls fails says so, and has what it called synced") {
  const uint64_t failed = FailEachOfRocksDb([](const CallFault& fault) {
    const ScratchDir scratch;
    const std::string dir = scratch / "index";
    WriteAcknowledged(dir, 0);
    const int how = RunChild("child: works on an index", dir, fault);
    const auto acknowledged = static_cast<uint32_t>(fs::file_size(AcknowledgedFile(dir)));
    const auto index = OpenRocksDbIndex(dir, kDevice, {});
    INFO(index.status().ToString());
    REQUIRE((index.ok() || acknowledged == 0));
    if (!index.ok()) return how;
    const RecordMap found = ReadAll(**index);
    for (uint32_t n = 0; n < acknowledged; ++n) CHECK(found.contains(NumberedRecord(n).id));
    if (acknowledged > 0) {
      CHECK((*index)->ReadStableMark()->sequence >= CommitSequence(acknowledged - 1));
    }
    return how;
  });
  CHECK(failed > 20);
}

TEST_CASE("child: writes an index whose own reads fail for a while", "[.child]") {
  constexpr uint32_t kRewritten = 500;
  constexpr int kMostTries = 5;
  const auto index =
      OpenRocksDbIndex(Told("KVKEEP_TEST_DIR"), kDevice,
                       {.create = true, .write_buffer_bytes = 64 * kKiB, .may_wait = true});
  REQUIRE(index.ok());
  uint64_t refused = 0;
  const auto until_ok = [&](const std::function<absl::Status()>& write) {
    absl::Status status = write();
    for (int tries = 0; !status.ok() && tries < kMostTries; ++tries) {
      refused += absl::StrContains(status.ToString(), "While pread");
      INFO(status.ToString());
      REQUIRE(absl::IsUnavailable(status));
      status = write();
    }
    INFO(status.ToString());
    REQUIRE(status.ok());
  };
  const CallFault fault = ToldFault();
  {
    // Tables are flushed and compacted, each opened and read: more than a hundred times.
    const FailingCalls calls(fault);
    for (uint32_t n = 0; n < 20 * kRewritten; ++n) {
      until_ok([&] { return (*index)->Commit({.adds = {NumberedRecord(n % kRewritten)}}); });
      if (n % 100 == 0) {
        until_ok([&] { return (*index)->Sync({kBoot, CommitSequence(n)}); });
      }
    }
    REQUIRE(calls.failed() == "pread");
  }
  CHECK(refused > 0);
  CHECK(ReadAll(**index).size() == kRewritten);
}

TEST_CASE("an index that could not read its own tables goes on, and has all that was written") {
  for (const uint64_t number : {0, 1, 2, 5, 11, 30, 60}) {
    INFO("read " << number);
    const ScratchDir scratch;
    const std::string dir = scratch / "index";
    const int how = RunChild("child: writes an index whose own reads fail for a while", dir,
                             {.number = number, .only = "pread"});
    REQUIRE(WIFEXITED(how));
    CHECK(WEXITSTATUS(how) == 0);
    const auto index = OpenRocksDbIndex(dir, kDevice, {});
    REQUIRE(index.ok());
    CHECK(ReadAll(**index).size() == 500);
  }
}

TEST_CASE("child: breaks one index after the other", "[.child]") {
  const std::string dir = Told("KVKEEP_TEST_DIR");
  for (uint32_t broken = 0;; ++broken) {
    const auto index = OpenRocksDbIndex(dir, kDevice, {.create = broken == 0});
    if (absl::IsResourceExhausted(index.status())) {
      CHECK(broken == 16);
      CHECK(absl::StrContains(index.status().message(), "restart it"));
      return;
    }
    REQUIRE(index.ok());
    const FailingCalls calls({.number = 0, .only = "write", .error = EIO, .of_rocksdb = true});
    REQUIRE_FALSE((*index)->Commit({.adds = {NumberedRecord(broken)}}).ok());
  }
}

TEST_CASE("a process opens no index any more when too many broken ones are left in its memory") {
  const ScratchDir scratch;
  CHECK(RunChild("child: breaks one index after the other", scratch / "index", {}) == 0);
  CHECK(OpenRocksDbIndex(scratch / "index", kDevice, {}).ok());
}

TEST_CASE("child: rebuilds an index", "[.child]") {
  StoreOnDisk store;
  store.options.dir = Told("KVKEEP_TEST_DIR");
  absl::Status rebuilt;
  std::string failed;
  {
    const FailingCalls calls(ToldFault());
    rebuilt = RebuildIndex(store.fsck_options()).status();
    failed = calls.failed();
  }
  if (rebuilt.ok()) CHECK(store.Check().clean());
  JudgeChild(rebuilt, failed);
}

TEST_CASE("a rebuild one of whose calls to the database fails is done by the next one") {
  StoreOnDisk store;
  REQUIRE(store.Start());
  for (uint64_t name = 0; name < kRebuilt; ++name) store.Put(name, 10'000, 100);
  store.Stop();
  const uint64_t failed = FailEachOfRocksDb([&](const CallFault& fault) {
    const int how = RunChild("child: rebuilds an index", store.options.dir, fault);
    CHECK(store.Rebuild().chunks == kRebuilt);
    return how;
  });
  CHECK(failed > 20);
  CHECK(store.Check().clean());
  REQUIRE(store.Start());
  for (uint64_t name = 0; name < kRebuilt; ++name) CHECK(store.Get(name) == "hit");
}

TEST_CASE("a check that cannot read the index says so, and not what it says without a fault") {
  StoreOnDisk store;
  REQUIRE(store.Start());
  for (uint64_t name = 0; name < kRebuilt; ++name) store.Put(name, 10'000, 100);
  store.Stop();
  // Two records of the same blocks: their names are looked up in a second pass.
  IndexRecord twin = store.Record(0);
  twin.id.part = PartId(1);
  // The second time, the first one's log goes into a table, which is read when it is opened.
  for (int i = 0; i < 2; ++i) store.CommitRecords({.adds = {twin}});
  FsckOptions options = store.fsck_options();
  options.threads = 1;
  const std::string found = Text(store.Check().findings);
  REQUIRE(found.find("has the same block") != std::string::npos);
  uint64_t reads = 0, passes = 0;
  for (std::string failed = "pread"; !failed.empty(); ++reads) {
    const FailingCalls calls({.number = reads, .only = "pread", .error = EIO, .of_rocksdb = true});
    const absl::StatusOr<FsckReport> report = Fsck(options);
    failed = calls.failed();
    INFO(reads << ": " << report.status().ToString());
    CHECK((report.ok() || IsOneLine(report.status())));
    CHECK((report.ok() && Text(report->findings) == found) == failed.empty());
    if (report.ok())
      passes += Text(report->findings).find("index: scan: IO error") != std::string::npos;
  }
  CHECK(passes > 1);  // in either pass over the records
}

}  // namespace kvkeep
