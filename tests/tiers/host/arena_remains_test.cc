#include "tiers/host/arena_remains.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/fakes/scratch_dir.h"
#include "tests/tiers/host/child_process.h"
#include "tests/tiers/host/in_namespace.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tiers/host/arena.h"
#include "tiers/host/arena_files.h"

namespace kvkeep {
namespace {

std::unique_ptr<Arena> MakeArena(const MountRoom& room, Findings& findings) {
  ArenaOptions options;
  options.capacity_bytes = 7 * kMiB;
  options.segment_bytes = 2 * kMiB;
  options.backing = ArenaBacking::kMount;
  options.mount_dir = room.writable;
  options.readonly_dir = room.readonly;
  auto arena = CreateArena(options, nullptr);
  findings.Expect(arena.ok(), arena.status().ToString());
  return arena.ok() ? *std::move(arena) : nullptr;
}

std::string Names(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  std::string all;
  for (const std::string& name : names) absl::StrAppend(&all, name, " ");
  return all;
}

}  // namespace

TEST_CASE("an arena is seen while a daemon uses it and after, and can be dropped only then") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=64m,mode=0700"), "mount")) return;
    std::unique_ptr<Arena> arena = MakeArena(room, findings);
    if (arena == nullptr) return;
    std::ofstream(room.writable + "/mine") << "no business of the arena's";

    auto remains = LookAtArena(room.writable);
    if (!findings.Expect(remains.ok(), remains.status().ToString())) return;
    findings.Expect(remains->in_use, "in use");
    findings.Expect(remains->segments == 4, "segments");
    findings.Expect(remains->held_bytes >= 7 * kMiB, "held");
    findings.Expect(absl::StrContains(remains->id, arena->uuid().ToHex()), remains->id);
    findings.Expect(absl::StartsWith(remains->filesystem, "tmpfs, huge="), remains->filesystem);
    const absl::Status refused = DropArena(room.writable).status();
    findings.Expect(refused.code() == absl::StatusCode::kFailedPrecondition, refused.ToString());
    findings.Expect(absl::StrContains(refused.message(), "stop it first"), refused.ToString());

    arena.reset();
    remains = LookAtArena(room.writable);
    findings.Expect(remains.ok() && !remains->in_use && remains->segments == 4, "held on");
    const auto dropped = DropArena(room.writable);
    if (!findings.Expect(dropped.ok(), dropped.status().ToString())) return;
    findings.Expect(dropped->bytes == remains->held_bytes && dropped->files == remains->files,
                    absl::StrCat("dropped ", dropped->bytes));
    findings.Expect(dropped->still_held_bytes == 0, "nobody holds them");
    // Whatever files an arena has, all are gone, and nothing else.
    findings.Expect(Names(room.writable) == "arena.lock mine ", Names(room.writable));
    const auto nothing = DropArena(room.writable);
    findings.Expect(nothing.ok() && nothing->files == 0 && nothing->bytes == 0, "twice");
    findings.Expect(MakeArena(room, findings) != nullptr, "and made anew");
  });
}

TEST_CASE("memory that a client maps still is told as such") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=64m,mode=0700"), "mount")) return;
    if (MakeArena(room, findings) == nullptr) return;
    const UniqueFd fd(open((room.readonly + "/segment.001").c_str(), O_RDONLY | O_CLOEXEC));
    void* mapped = mmap(nullptr, 2 * kMiB, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (!findings.Expect(mapped != MAP_FAILED, "mmap")) return;
    const auto dropped = DropArena(room.writable);
    findings.Expect(dropped.ok() && dropped->bytes >= 7 * kMiB, "dropped");
    findings.Expect(dropped.ok() && dropped->still_held_bytes == 2 * kMiB,
                    absl::StrCat("still held: ", dropped->still_held_bytes));
  });
}

TEST_CASE("the identity goes first: a drop that stops half way leaves nothing that looks whole") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=64m,mode=0700"), "mount")) return;
    if (MakeArena(room, findings) == nullptr) return;
    // A directory cannot be unlinked: the drop stops there, before segment.001.
    std::filesystem::create_directory(room.writable + "/segment.0000");
    findings.Expect(!DropArena(room.writable).ok(), "stops");
    struct stat info {};
    findings.Expect(lstat((room.writable + "/arena.id").c_str(), &info) != 0, "no identity");
    findings.Expect(lstat((room.writable + "/segment.003").c_str(), &info) == 0, "half way");
  });
}

TEST_CASE("what is no arena's mount is refused, and nothing in it is touched") {
  const ScratchDir dir;
  CHECK(LookAtArena(dir / "none").status().code() == absl::StatusCode::kNotFound);
  CHECK(DropArena(dir / "none").status().code() == absl::StatusCode::kNotFound);
  const absl::StatusOr<ArenaRemains> proc = LookAtArena("/proc/self");
  CHECK(proc.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(absl::StrContains(proc.status().message(), "neither tmpfs nor hugetlbfs"));
}

TEST_CASE("an arena's files are known by their names, the lock is none of them") {
  for (const char* name : {"arena.id", "arena.marks", "segment.000", "segment.1234"}) {
    CHECK(IsArenaFile(name));
  }
  for (const char* name : {"arena.lock", "arena.ids", "segment.", "segment.00", "segment.0x0",
                           "Segment.000", "", ".", "..", "segment.000.bak"}) {
    CHECK_FALSE(IsArenaFile(name));
  }
}

TEST_CASE("an arena's id is read as it was written, and with a field that is wrong not at all") {
  const ArenaId id{.uuid = *Uuid::FromBytes("arena"), .geometry = {kGiB, kMiB}, .owners = 7};
  const std::string text = id.ToString();
  REQUIRE(ArenaId::Parse(text).has_value());
  CHECK(ArenaId::Parse(text)->ToString() == text);
  for (size_t field = 0; field < 5; ++field) {
    std::vector<std::string> fields = absl::StrSplit(text, ':');
    fields[field] = field == 1 ? std::string(32, 'g') : "x";
    CHECK_FALSE(ArenaId::Parse(absl::StrJoin(fields, ":")).has_value());
  }
  CHECK_FALSE(ArenaId::Parse(text + ":1").has_value());
}

}  // namespace kvkeep
