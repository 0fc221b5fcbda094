// The arena, and files of an earlier arena, whichever call fails.
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/fakes/failing_calls.h"
#include "tests/tiers/failing_calls/descriptors.h"
#include "tests/tiers/host/child_process.h"
#include "tiers/base/units.h"
#include "tiers/host/arena.h"
#include "tiers/host/arena_remains.h"

namespace kvkeep {
namespace {

// Opens an arena, and a descriptor for a client, with one call failing.
std::string OpenBadly(const ArenaOptions& options, const CallFault& fault, Findings& findings) {
  const size_t before = OpenDescriptors();
  std::string failed;
  absl::Status status;
  {
    const FailingCalls calls(fault);
    const auto arena = CreateArena(options, nullptr);
    status = arena.status();
    if (arena.ok()) {
      const absl::StatusOr<int> client = (*arena)->OpenForClient(1);
      status = client.status();
      if (client.ok()) close(*client);
    }
    failed = calls.failed();
  }
  findings.Expect(status.ok() || IsOneLine(status), failed + ": no reason");
  findings.Expect(status.ok() || !failed.empty(), "without a fault: " + status.ToString());
  findings.Expect(OpenDescriptors() == before, failed + ": a descriptor is left");
  return failed;
}

}  // namespace

TEST_CASE("an arena on memfd is there or not, whichever call fails") {
  const ArenaOptions options{
      .capacity_bytes = 4 * kMiB, .segment_bytes = 2 * kMiB, .backing = ArenaBacking::kMemfd};
  Findings findings;
  for (const int error : {EIO, ENOMEM, EINVAL}) {
    CHECK(FailEachCall({error}, [&](const CallFault& fault) {
            return OpenBadly(options, fault, findings);
          }) > 5);
  }
  OpenBadly(options, {.number = 0, .only = "memfd_create", .error = EMFILE, .and_later = true},
            findings);
  CHECK(findings.ToString() == "");
}

TEST_CASE("an arena on a mount comes back after a start that failed at any call") {
  const std::string report = RunInMountNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=16m,mode=0700"), "mount")) return;
    ArenaOptions options{.capacity_bytes = 4 * kMiB,
                         .segment_bytes = 2 * kMiB,
                         .backing = ArenaBacking::kMount,
                         .mount_dir = room.writable,
                         .readonly_dir = room.readonly};
    for (const bool fresh : {true, false}) {
      options.fresh = fresh;
      CreateArena(options, nullptr).status().IgnoreError();  // each attempt finds one
      FailEachCall({EIO, EINTR, ENOSPC}, [&](const CallFault& fault) {
        const std::string failed = OpenBadly(options, fault, findings);
        ArenaOptions again = options;
        again.fresh = false;
        const auto arena = CreateArena(again, nullptr);
        findings.Expect(arena.ok(), "after a failed " + failed + ": " + arena.status().ToString());
        return failed;
      });
    }
  });
  if (report == kNotPermitted) {
    WARN("skipped: " << kNotPermitted);
    return;
  }
  CHECK(report == "");
}

TEST_CASE("what an arena left is told and dropped, or the reason why not, whichever call fails") {
  const std::string report = RunInMountNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=16m,mode=0700"), "mount")) return;
    const ArenaOptions options{.capacity_bytes = 4 * kMiB,
                               .segment_bytes = 2 * kMiB,
                               .backing = ArenaBacking::kMount,
                               .mount_dir = room.writable,
                               .readonly_dir = room.readonly};
    const auto expect = [&](const absl::Status& status, const std::string& failed) {
      findings.Expect(status.ok() || IsOneLine(status), failed + ": no reason");
      findings.Expect(status.ok() || !failed.empty(), "without a fault: " + status.ToString());
    };
    CreateArena(options, nullptr).status().IgnoreError();
    FailEachCall({EIO, ENOENT}, [&](const CallFault& fault) {
      const FailingCalls calls(fault);
      const absl::Status status = LookAtArena(room.writable).status();
      expect(status, calls.failed());
      return calls.failed();
    });
    FailEachCall({EIO, ENOENT}, [&](const CallFault& fault) {
      CreateArena(options, nullptr).status().IgnoreError();
      const FailingCalls calls(fault);
      const absl::Status status = DropArena(room.writable).status();
      expect(status, calls.failed());
      return calls.failed();
    });
    findings.Expect(DropArena(room.writable).ok() && LookAtArena(room.writable)->held_bytes == 0,
                    "something is left");
  });
  if (report == kNotPermitted) {
    WARN("skipped: " << kNotPermitted);
    return;
  }
  CHECK(report == "");
}

}  // namespace kvkeep
