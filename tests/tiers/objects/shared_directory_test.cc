// A directory that machines share: its mark, the modes and owners of files made there, and
// leftovers of unfinished files.
#include "tiers/objects/shared_directory.h"

#include <absl/strings/match.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/manual_executor.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/seeded_random.h"
#include "tests/tiers/objects/scripted_bucket.h"
#include "tiers/base/bytes.h"
#include "tiers/objects/directory_check.h"
#include "tiers/objects/directory_store.h"

namespace kvkeep {
namespace {

namespace fs = std::filesystem;
using Outcome = ObjectOutcome;
using State = ObjectStoreHealth::State;

// A daemon's store in a directory that need not exist.
struct SharingNode {
  explicit SharingNode(const std::string& path, const std::string& writer = "node-a",
                       uint64_t seed = 1)
      : random(seed),
        store({.path = path, .mark = "east", .writer = writer}, &executor, &clock, &random) {}

  ObjectAnswer Put(const std::string& name, const std::string& body = "hello") {
    ObjectAnswer answer;
    store.Put({.name = name, .body = {AsBytes(body)}, .if_absent = true},
              [&](ObjectAnswer told) { answer = std::move(told); });
    executor.RunAll();
    return answer;
  }
  ObjectAnswer Get(const std::string& name) {
    ObjectAnswer answer;
    TextObjectSink sink;
    store.Get({.name = name}, &sink, [&](ObjectAnswer told) { answer = std::move(told); });
    executor.RunAll();
    return answer;
  }
  ObjectAnswer Delete(const std::string& name) {
    ObjectAnswer answer;
    store.Delete({.name = name}, [&](ObjectAnswer told) { answer = std::move(told); });
    executor.RunAll();
    return answer;
  }

  ManualExecutor executor;
  ManualClock clock;
  SeededRandom random;
  DirectoryStore store;
};

size_t FilesBelow(const std::string& path) {
  size_t files = 0;
  for (const auto& at : fs::recursive_directory_iterator(path)) files += at.is_regular_file();
  return files;
}

mode_t ModeOf(const std::string& path) {
  struct stat is {};
  REQUIRE(lstat(path.c_str(), &is) == 0);
  return is.st_mode & 07777;
}

void SetAge(const std::string& path, std::chrono::hours age) {
  timespec times[2] = {};
  times[0].tv_sec = times[1].tv_sec = time(nullptr) - age.count() * 3600;
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

// Runs it in a process of another user's, which answers by its exit code.
bool HoldsAs(uid_t uid, gid_t gid, const std::function<bool()>& holds) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool is = setgroups(0, nullptr) == 0 && setgid(gid) == 0 && setuid(uid) == 0;
    _exit(is && holds() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("a directory without its fleet's mark is away, and nothing is written there") {
  const ScratchDir scratch;
  const std::string path = scratch / "g4";
  SharingNode node(path);
  CHECK(node.Get("1/n").outcome == Outcome::kBroken);  // it is absent
  CHECK(node.store.health().state == State::kAway);
  CHECK(node.store.health().error.code == "ENOENT");

  fs::create_directory(path);  // as the mount point of an absent mount
  CHECK(node.Put("1/n").outcome == Outcome::kBroken);
  CHECK(FilesBelow(path) == 0);
  CHECK(node.store.health().state == State::kAway);
  CHECK(node.store.health().error.code == "NotMarked");
  CHECK(absl::StrContains(node.store.health().what_to_do, "kvkeep g4 init"));

  REQUIRE(MarkSharedDirectory(path, "west").ok());
  CHECK(node.Put("1/n").outcome == Outcome::kMisconfigured);
  CHECK(node.store.health().state == State::kMisconfigured);
  CHECK(node.store.health().error.code == "MarkOfAnother");
  CHECK(node.store.counters().unopened == 3);

  fs::remove(path + "/.kvkeep");
  REQUIRE(MarkSharedDirectory(path, "east").ok());
  CHECK(node.Put("1/n").ok());
  CHECK(node.Get("1/n").ok());
  node.clock.Advance(std::chrono::seconds(60));
  CHECK(node.store.health().writable());
}

TEST_CASE("a directory that is replaced under a store is opened anew, and needs its mark again") {
  const ScratchDir scratch;
  const std::string path = scratch / "g4";
  fs::create_directory(path);
  REQUIRE(MarkSharedDirectory(path, "east").ok());
  SharingNode node(path);
  REQUIRE(node.Put("1/n").ok());
  fs::remove_all(path);
  CHECK_FALSE(node.Put("1/m").ok());
  fs::create_directory(path);
  CHECK(node.Put("1/m").error.code == "NotMarked");
  REQUIRE(MarkSharedDirectory(path, "east").ok());
  CHECK(node.Put("1/m").ok());
  CHECK(node.Get("1/m").ok());
}

TEST_CASE("a mark is made once, is not taken over, and is one line") {
  const ScratchDir scratch;
  CHECK(MarkSharedDirectory(scratch.path(), "east").ok());
  CHECK(MarkSharedDirectory(scratch.path(), "east").ok());
  const absl::Status other = MarkSharedDirectory(scratch.path(), "west");
  CHECK(absl::IsAlreadyExists(other));
  CHECK(absl::StrContains(other.message(), "is of the fleet 'east'"));
  CHECK(absl::IsInvalidArgument(MarkSharedDirectory(scratch.path(), "")));
  CHECK(absl::IsInvalidArgument(MarkSharedDirectory(scratch.path(), "a\nb")));
  CHECK(absl::IsInvalidArgument(MarkSharedDirectory(scratch.path(), std::string(256, 'a'))));
  CHECK_FALSE(MarkSharedDirectory(scratch / "none", "east").ok());
  CHECK(OpenSharedDirectory(scratch.path(), "").mark == "east");
}

TEST_CASE("what a killed writer left goes at its next start, and nothing of others does") {
  const ScratchDir scratch;
  REQUIRE(MarkSharedDirectory(scratch.path(), "east").ok());
  fs::create_directory(scratch / ".new");
  const auto leave = [&](const std::string& name) {
    std::ofstream(scratch.path() + "/.new/" + name) << "half an image";
  };
  leave("node-a.0000000000000001.0000000000000001");
  leave("node-a.0000000000000001.0000000000000002");
  leave("node-aa.0000000000000001.0000000000000003");
  leave("node-b.0000000000000001.0000000000000004");
  leave("00000000000000ff");  // of an earlier kvkeep
  SharingNode node(scratch.path());
  CHECK(node.Get("1/n").outcome == Outcome::kAbsent);
  CHECK(node.store.counters().leftover_files == 2);
  CHECK(node.store.counters().leftover_bytes == 26);
  CHECK(FilesBelow(scratch / ".new") == 3);

  // A file of this run is not taken for a leftover when the directory is opened again.
  SharedDirectory directory = OpenSharedDirectory(scratch.path(), "east");
  leave("node-a.0000000000000007.0000000000000001");
  CHECK(RemoveOwnLeftovers(directory, "node-a", 7).files == 0);
  CHECK(RemoveOwnLeftovers(directory, "", 7).files == 0);
  CHECK(RemoveOwnLeftovers(directory, "node-a", 8).files == 1);
}

TEST_CASE("files that nobody finished within a day are removed, whoever wrote them") {
  const ScratchDir scratch;
  REQUIRE(MarkSharedDirectory(scratch.path(), "east").ok());
  const SharedDirectory directory = OpenSharedDirectory(scratch.path(), "");
  constexpr std::chrono::hours kDay{24};
  CHECK(RemoveOldLeftovers(directory, kDay, false)->files == 0);
  for (const char* name : {"00000000000000ff", "node-b.0000000000000001.0000000000000004",
                           "node-b.0000000000000001.0000000000000005"}) {
    std::ofstream(scratch.path() + "/.new/" + name) << "half";
    SetAge(scratch.path() + "/.new/" + name, std::chrono::hours(72));
  }
  SetAge(scratch / ".new/node-b.0000000000000001.0000000000000005", std::chrono::hours(23));
  const absl::StatusOr<Leftovers> dry = RemoveOldLeftovers(directory, kDay, true);
  REQUIRE(dry.ok());
  CHECK(dry->files == 2);
  CHECK(FilesBelow(scratch / ".new") == 3);
  const absl::StatusOr<Leftovers> removed = RemoveOldLeftovers(directory, kDay, false);
  REQUIRE(removed.ok());
  CHECK(removed->files == 2);
  CHECK(removed->bytes == 8);
  CHECK(FilesBelow(scratch / ".new") == 1);
}

TEST_CASE("what is made below a shared directory has its modes, whatever the umask") {
  struct Case {
    mode_t directory, folder, file;
  };
  for (const Case& is : {Case{0700, 0700, 0600}, Case{0755, 0750, 0640}, Case{02770, 02770, 0660},
                         Case{01777, 0777, 0666}}) {
    CAPTURE(is.directory);
    const ScratchDir scratch;
    REQUIRE(chmod(scratch.path().c_str(), is.directory) == 0);
    const mode_t before = umask(0077);
    REQUIRE(MarkSharedDirectory(scratch.path(), "east").ok());
    SharingNode node(scratch.path());
    CHECK(node.Put("1/0ab/n").ok());
    umask(before);
    CHECK(ModeOf(scratch / ".kvkeep") == is.file);
    CHECK(ModeOf(scratch / ".new") == is.folder);
    CHECK(ModeOf(scratch / "1/0ab") == is.folder);
    CHECK(ModeOf(scratch / "1/0ab/n") == is.file);
  }
}

TEST_CASE("a file of another user's is refused by itself, and a folder takes no puts alone") {
  if (geteuid() != 0) {
    WARN("skipped: not root");
    return;
  }
  const ScratchDir scratch;
  REQUIRE(chmod(scratch.path().c_str(), 01777) == 0);
  REQUIRE(MarkSharedDirectory(scratch.path(), "east").ok());
  {
    SharingNode first(scratch.path());
    REQUIRE(first.Put("1/n").ok());
    REQUIRE(first.Put("1/m").ok());
  }
  // As an earlier kvkeep left them, by the umask of its service.
  REQUIRE(chmod((scratch / "1/n").c_str(), 0600) == 0);
  CHECK(HoldsAs(65'002, 65'002, [&] {
    SharingNode second(scratch.path(), "node-b", 2);
    const ObjectAnswer denied = second.Get("1/n");
    return denied.outcome == Outcome::kRefused &&
           absl::StrContains(denied.error.message,
                             "1/n was made by uid 0 with mode 0600, and this is uid 65002") &&
           second.Get("1/m").ok() && second.store.health().writable() && second.Put("1/o").ok();
  }));
  REQUIRE(chmod((scratch / "1").c_str(), 0755) == 0);
  CHECK(HoldsAs(65'002, 65'002, [&] {
    SharingNode second(scratch.path(), "node-b", 2);
    const ObjectAnswer denied = second.Put("1/p");
    const ObjectStoreHealth health = second.store.health();
    return denied.outcome == Outcome::kMisconfigured && health.readable() && !health.takes_puts &&
           absl::StrContains(health.error.message, "1 was made by uid 0 with mode 0755") &&
           absl::StrContains(health.what_to_do, "2770") && second.Get("1/m").ok() &&
           second.Delete("1/m").outcome == Outcome::kRefused && second.store.health().readable();
  }));
  CHECK(HoldsAs(65'002, 65'002, [&] {
    bool bad = false;
    for (const BucketFinding& finding : CheckDirectory(scratch.path(), "east")) {
      bad |= finding.what == "writing beside what is there" &&
             finding.verdict == BucketFinding::Verdict::kBad &&
             absl::StrContains(finding.says, "made by uid 0 with mode 0755, and this is uid 65002");
    }
    return bad;
  }));
}

TEST_CASE("two users of one group share a directory that has it") {
  if (geteuid() != 0) {
    WARN("skipped: not root");
    return;
  }
  const ScratchDir scratch;
  constexpr gid_t kGroup = 65'100;
  REQUIRE(chown(scratch.path().c_str(), 0, kGroup) == 0);
  REQUIRE(chmod(scratch.path().c_str(), 02770) == 0);
  REQUIRE(MarkSharedDirectory(scratch.path(), "east").ok());
  CHECK(HoldsAs(65'001, kGroup, [&] {
    umask(0077);
    return SharingNode(scratch.path()).Put("1/n").ok();
  }));
  CHECK(HoldsAs(65'002, kGroup, [&] {
    SharingNode second(scratch.path(), "node-b", 2);
    bool good = true;
    for (const BucketFinding& finding : CheckDirectory(scratch.path(), "east")) {
      good &= finding.verdict == BucketFinding::Verdict::kGood;
    }
    return good && second.Get("1/n").ok() && second.Put("1/m").ok() && second.Delete("1/n").ok();
  }));
}

}  // namespace kvkeep
