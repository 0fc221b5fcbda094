// An arena that is made while clients still map the one before: it has the available memory, and
// takes the rest when it comes.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <vector>

#include "tests/fakes/manual_executor.h"
#include "tests/tiers/host/in_namespace.h"
#include "tests/tiers/host/mounted_arena.h"
#include "tiers/base/page_bytes.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tiers/host/arena.h"

namespace kvkeep {
namespace {

constexpr uint64_t kCapacity = 8 * kMiB;  // four segments

// Makes an earlier arena; the returned objects hold its memory, as clients' mappings do.
std::vector<UniqueFd> MakeFormer(const MountRoom& room, Findings& findings) {
  std::vector<UniqueFd> held;
  const auto arena = Open(MountOptions(room, kCapacity), findings);
  for (size_t i = 0; arena != nullptr && i < arena->segment_count(); ++i) {
    held.emplace_back(arena->OpenForClient(i).value());
  }
  return held;
}

uint64_t Bytes(const std::vector<Extent>& extents) {
  uint64_t bytes = 0;
  for (const Extent& extent : extents) bytes += extent.bytes();
  return bytes;
}

// Returns the bytes that the segments' files take.
uint64_t TakenBytes(const MountRoom& room) {
  uint64_t bytes = 0;
  for (int i = 0; i < 4; ++i) {
    struct stat info {};
    if (stat(absl::StrCat(room.writable, "/segment.00", i).c_str(), &info) == 0) {
      bytes += static_cast<uint64_t>(info.st_blocks) * 512;
    }
  }
  return bytes;
}

// The first block of each segment, which has memory in any part.
std::span<std::byte> FirstBlock(Arena& arena, size_t segment) {
  const uint64_t first = segment * arena.segment_blocks().value();
  return arena.Memory({BlockNumber(first), BlockCount(1)});
}

void Mark(Arena& arena) {
  for (size_t i = 0; i < arena.segment_count(); ++i) {
    std::ranges::fill(FirstBlock(arena, i), static_cast<std::byte>(i + 1));
  }
}

bool IsMarked(Arena& arena) {
  bool marked = true;
  for (size_t i = 0; i < arena.segment_count(); ++i) {
    marked = marked && FirstBlock(arena, i)[17] == static_cast<std::byte>(i + 1);
  }
  return marked;
}

bool HasPart(const MountRoom& room) {
  return std::filesystem::is_symlink(room.writable + "/arena.part");
}

}  // namespace

TEST_CASE("beside clients of before an arena has the memory there is, of each segment some") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=9m,mode=0700"), "mount")) return;
    std::vector<UniqueFd> held = MakeFormer(room, findings);
    ManualExecutor executor;
    ArenaOptions options = MountOptions(room, kCapacity);
    options.fresh = true;
    const auto arena = Open(options, findings, &executor);
    if (arena == nullptr) return;
    executor.RunAll();
    const uint64_t to_come = Bytes(arena->ToCome());
    // A mebibyte is free, for the marks too.
    const uint64_t piece = std::max(32 * kKiB, PageBytes());
    const uint64_t there = (kMiB - RoundUp(16 * kKiB, PageBytes())) / piece * piece;
    findings.Expect(kCapacity - to_come == there, absl::StrCat(to_come, " to come"));
    findings.Expect(arena->stats().to_come_bytes == to_come, "the statistics say otherwise");
    findings.Expect(arena->stats().prefaulted_bytes == kCapacity - to_come, "prefault");
    findings.Expect(TakenBytes(room) == kCapacity - to_come, "what is to come was touched");
    findings.Expect(arena->ToCome().size() == 4 && !arena->SegmentIsWhole(0), "no equal parts");
    findings.Expect(absl::StrContains(arena->describe(), "7 MiB of it to come"), arena->describe());
    findings.Expect(HasPart(room), "no arena.part");
    Mark(*arena);
    findings.Expect(arena->TakeMore().empty(), "memory from nowhere");

    held.pop_back();  // two mebibytes
    uint64_t came = Bytes(arena->TakeMore());
    findings.Expect(came == 2 * kMiB, absl::StrCat(came, " bytes of one segment"));
    held.clear();
    came += Bytes(arena->TakeMore());
    findings.Expect(came == to_come, absl::StrCat(came, " came of ", to_come));
    findings.Expect(arena->ToCome().empty() && arena->SegmentIsWhole(3), "not whole");
    findings.Expect(arena->TakeMore().empty(), "more than all");
    findings.Expect(!HasPart(room), "arena.part of a whole arena");
    executor.RunAll();
    findings.Expect(arena->stats().prefaulted_bytes == kCapacity, "prefault of what came");
    findings.Expect(IsMarked(*arena), "what was there before");
  });
}

TEST_CASE("an arena that has a part of its memory is found again with that part, and takes more") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=9m,mode=0700"), "mount")) return;
    std::vector<UniqueFd> held = MakeFormer(room, findings);
    ArenaOptions options = MountOptions(room, kCapacity);
    options.fresh = true;
    Uuid uuid;
    uint64_t to_come = 0;
    {
      const auto arena = Open(options, findings);
      if (arena == nullptr) return;
      Mark(*arena);
      held.pop_back();
      arena->TakeMore();
      uuid = arena->uuid();
      to_come = Bytes(arena->ToCome());
    }
    options.fresh = false;
    {
      const auto arena = Open(options, findings);
      if (arena == nullptr) return;
      findings.Expect(arena->uuid() == uuid && IsMarked(*arena), "not the same arena");
      findings.Expect(Bytes(arena->ToCome()) == to_come, absl::StrCat("not ", to_come, " to come"));
      findings.Expect(arena->stats().reused_segments == 4, "reused");
    }
    held.clear();
    for (int start = 0; start < 2; ++start) {
      const auto arena = Open(options, findings);
      if (arena == nullptr) return;
      findings.Expect(arena->uuid() == uuid && IsMarked(*arena), "not the same arena at the end");
      findings.Expect(arena->ToCome().empty() && !HasPart(room), "not whole at the end");
    }
  });
}

TEST_CASE("an arena of which nobody knows how much has memory is made anew") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=9m,mode=0700"), "mount")) return;
    MakeFormer(room, findings);
    const std::string part = room.writable + "/arena.part";
    const auto describe = [&](const std::string& text) {
      unlink(part.c_str());
      findings.Expect(symlink(text.c_str(), part.c_str()) == 0, "symlink");
      const auto arena = Open(MountOptions(room, kCapacity), findings);
      return arena == nullptr ? "" : arena->describe();
    };
    for (const std::string text : {"v9:of another time", "v1:x:32768:3"}) {
      const std::string line = describe(text);
      findings.Expect(absl::StrContains(line, "how much of them has memory is not known"), line);
      findings.Expect(!HasPart(room), "it stays");
    }
    // A file of an ended arena proves nothing.
    const std::string line = describe(absl::StrCat("v1:", std::string(32, '0'), ":32768:3"));
    findings.Expect(absl::StrContains(line, "files of an earlier start reused"), line);
  });
}

TEST_CASE("after a wait for memory, why the files of before were not kept is known still") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    // So little more than the arena that there is no piece for each segment.
    if (!findings.Expect(room.MountTmpfs("size=8256k,mode=0700"), "mount")) return;
    std::vector<UniqueFd> held = MakeFormer(room, findings);
    ArenaOptions options = MountOptions(room, kCapacity);
    options.owners = 7;
    std::string replaced_because;
    options.replaced_because = &replaced_because;
    for (int attempt = 0; attempt < 2; ++attempt) {
      const absl::Status status = CreateArena(options, nullptr).status();
      findings.Expect(absl::IsUnavailable(status) &&
                          absl::StrContains(status.message(), "clients still map"),
                      status.ToString());
    }
    held.clear();
    const auto arena = Open(options, findings);
    if (arena == nullptr) return;
    findings.Expect(absl::StrContains(arena->describe(), "replaced (the store's identity"),
                    arena->describe());
  });
}

}  // namespace kvkeep
