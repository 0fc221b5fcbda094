// A device, whichever call fails.
#include <sys/mount.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/fakes/failing_calls.h"
#include "tests/fakes/manual_executor.h"
#include "tests/fakes/posix_io_engine.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/seeded_random.h"
#include "tests/tiers/failing_calls/descriptors.h"
#include "tests/tiers/host/child_process.h"
#include "tests/tiers/index/records.h"
#include "tiers/nvme/nvme_device.h"

namespace kvkeep {
namespace {

namespace fs = std::filesystem;

struct Place {
  ScratchDir scratch;
  ManualExecutor executor;
  PosixIoEngine engine{&executor};
  SeededRandom random{42};
  Uuid store = *Uuid::FromBytes("store");
  NvmeDeviceOptions options{
      .dir = scratch / "device", .capacity_bytes = 64 * kMiB, .file_bytes = 20 * kMiB};

  NvmeDevice::OpenResult Open() {
    return OpenNvmeDevice(options, store, MacKey{}, &engine, &random);
  }
  std::unique_ptr<NvmeDevice> MustOpen() {
    NvmeDevice::OpenResult result = Open();
    INFO(result.error.status.ToString());
    REQUIRE(result.device != nullptr);
    return std::move(result.device);
  }
  // Runs it with one call failing. Returns that call's name.
  std::string OpenBadly(const CallFault& fault) {
    const size_t before = OpenDescriptors();
    std::string failed;
    {
      const FailingCalls calls(fault);
      const NvmeDevice::OpenResult result = Open();
      failed = calls.failed();
      INFO(failed << ": " << result.error.status.ToString());
      if (failed.empty()) REQUIRE(result.device != nullptr);
      if (result.device == nullptr) CHECK(IsOneLine(result.error.status));
    }
    INFO(failed);
    CHECK(OpenDescriptors() == before);
    return failed;
  }
};

}  // namespace

TEST_CASE("a device whose format failed at any call is formatted by the next start") {
  const auto attempt = [](const CallFault& fault) {
    Place place;
    const std::string failed = place.OpenBadly(fault);
    INFO("after a failed " << failed);
    CHECK(ReadAll(place.MustOpen()->index()).empty());
    return failed;
  };
  CHECK(FailEachCall({EIO}, attempt) > 30);
  // File systems without fallocate, and full ones.
  for (const int error : {EOPNOTSUPP, ENOSPC})
    attempt({.number = 0, .only = "fallocate", .error = error});
  attempt({.number = 0, .only = "mkdir", .error = EACCES});
  attempt({.number = 0, .only = "pwrite", .error = ENOSPC});
}

TEST_CASE("a device is as it was after a start that failed at any call") {
  Place place;
  RecordMap wanted;
  {
    const auto device = place.MustOpen();
    IndexBatch batch{.adds = {NumberedRecord(7)}};
    wanted.emplace(batch.adds[0].id, batch.adds[0]);
    REQUIRE(device->index().Commit(batch).ok());
  }
  const auto attempt = [&](const CallFault& fault) {
    const std::string failed = place.OpenBadly(fault);
    INFO("after a failed " << failed);
    CHECK(ReadAll(place.MustOpen()->index()) == wanted);
    return failed;
  };
  CHECK(FailEachCall({EIO}, attempt) > 30);
  attempt({.number = 0, .only = "openat", .error = ELOOP});
  attempt({.number = 1, .only = "pread", .error = kMovesNothing});
  attempt({.number = 1, .only = "pread", .error = EINTR});
  attempt({.number = 0, .only = "flock", .error = EINTR});
}

TEST_CASE(
    "a device whose growth failed at any call has its old size, and grows at the next start") {
  const auto attempt = [](const CallFault& fault) {
    Place place;
    place.MustOpen();
    place.options.capacity_bytes = 96 * kMiB;
    const std::string failed = place.OpenBadly(fault);
    INFO("after a failed " << failed);
    CHECK(place.MustOpen()->capacity_bytes() == 96 * kMiB);
    return failed;
  };
  CHECK(FailEachCall({EIO}, attempt) > 30);
  attempt({.number = 0, .only = "fallocate", .error = ENOSPC, .and_later = true});
}

TEST_CASE("what a growth that was cut short left is cut off, unless the file system refuses") {
  const auto attempt = [](const CallFault& fault) {
    Place place;
    place.MustOpen();
    const std::string last = place.options.dir + "/data.001",
                      more = place.options.dir + "/data.002";
    const auto bytes = fs::file_size(last);
    const bool has_more = fs::exists(more);
    const std::string extra = has_more ? place.options.dir + "/data.003" : more;
    fs::resize_file(last, bytes + kMiB);
    fs::copy_file(last, extra);
    const std::string failed = place.OpenBadly(fault);
    INFO("after a failed " << failed);
    place.MustOpen();
    CHECK(fs::file_size(last) == bytes);
    CHECK_FALSE(fs::exists(extra));
    return failed;
  };
  for (const char* call : {"ftruncate", "unlinkat", "fstat"}) {
    for (uint64_t number = 0; !attempt({.number = number, .only = call, .error = EIO}).empty();) {
      ++number;
    }
  }
}

TEST_CASE("a live map that cannot be read or written costs a batch at most") {
  Place place;
  const auto device = place.MustOpen();
  ChunkIndex& index = device->index();
  REQUIRE(ReadAll(index).empty());
  RecordMap wanted;
  uint32_t next = 1;
  FailEachCall({EIO, EINTR, kMovesNothing}, [&](const CallFault& fault) {
    IndexBatch batch{.adds = {NumberedRecord(next++)}};
    if (!wanted.empty()) {
      batch.removes = {wanted.begin()->first};
      batch.freed = {wanted.begin()->second.extents[0].first};
    }
    std::string failed;
    absl::Status committed, synced;
    {
      const FailingCalls calls(fault);
      committed = index.Commit(batch);
      synced = index.Sync({.boot_id = *Uuid::FromBytes("boot"), .sequence = CommitSequence(next)});
      failed = calls.failed();
    }
    INFO(failed << ": " << committed.ToString() << ", " << synced.ToString());
    if (failed.empty()) CHECK((committed.ok() && synced.ok()));
    if (committed.ok()) {
      if (!batch.removes.empty()) wanted.erase(batch.removes[0]);
      wanted.emplace(batch.adds[0].id, batch.adds[0]);
    }
    CHECK(ReadAll(index) == wanted);
    return failed;
  });
  CHECK(wanted.size() == 1);
  const FailingCalls calls({.number = 0, .only = "fsync", .error = EIO});
  CHECK_FALSE(index.Sync({.boot_id = *Uuid::FromBytes("boot"), .sequence = {}}).ok());
  CHECK(calls.failed() == "fsync");
}

TEST_CASE("a live map that cannot be put right at the start costs batches, and no record") {
  Place place;
  RecordMap wanted;
  {
    const auto device = place.MustOpen();
    const IndexBatch batch{.adds = {NumberedRecord(7)}};
    REQUIRE(device->index().Commit(batch).ok());
    wanted.emplace(batch.adds[0].id, batch.adds[0]);
  }
  fs::resize_file(place.options.dir + "/live", 0);
  const auto device = place.MustOpen();
  const IndexBatch batch{.adds = {NumberedRecord(8)}};
  {
    const FailingCalls calls({.number = 0, .only = "pwrite", .error = EIO, .and_later = true});
    CHECK(ReadAll(device->index()) == wanted);
    CHECK_FALSE(device->index().Commit(batch).ok());
  }
  CHECK(device->index().Commit(batch).ok());
  wanted.emplace(batch.adds[0].id, batch.adds[0]);
  CHECK(ReadAll(device->index()) == wanted);
}

TEST_CASE("a directory that others may look into, and that cannot be closed to them, is refused") {
  Place place;
  const auto refused = [&place](bool formatted) {
    REQUIRE(chmod(place.options.dir.c_str(), 0755) == 0);
    const FailingCalls calls({.number = 0, .only = "fchmod", .error = EPERM});
    const NvmeDevice::OpenResult result = place.Open();
    INFO(formatted << " " << result.error.status.ToString());
    CHECK(result.device == nullptr);
    CHECK(result.error.failure == OpenFailure::kMisconfigured);
  };
  fs::create_directory(place.options.dir);
  refused(false);
  place.MustOpen();
  refused(true);
}

TEST_CASE("a device whose index cannot be made is formatted by the next start") {
  const std::string report = RunInMountNamespace([](const MountRoom& room, Findings& findings) {
    // Superblock, lock and data files get the last inodes.
    if (!findings.Expect(room.MountTmpfs("size=200m,nr_inodes=9,mode=0700"), "mount")) return;
    Place place;
    place.options.dir = room.writable + "/device";
    const NvmeDevice::OpenResult result = place.Open();
    findings.Expect(result.device == nullptr && IsOneLine(result.error.status) &&
                        result.error.status.message().find("index") != absl::string_view::npos,
                    "the index was made: " + result.error.status.ToString());
    findings.Expect(
        mount(nullptr, room.writable.c_str(), nullptr, MS_REMOUNT, "size=200m,nr_inodes=99") == 0,
        "remount");
    const NvmeDevice::OpenResult again = place.Open();
    findings.Expect(again.device != nullptr, again.error.status.ToString());
  });
  if (report == kNotPermitted) {
    WARN("skipped: " << kNotPermitted);
    return;
  }
  CHECK(report == "");
}

TEST_CASE("a start that fails at any open, look or lock is told in one line") {
  Place place;
  place.MustOpen();
  for (const char* call : {"open", "openat", "flock", "fstat"}) {
    uint64_t number = 0;
    for (std::string failed = call; failed == call; ++number) {
      failed = place.OpenBadly({.number = number, .only = call, .error = EIO});
    }
    CHECK(number > 1);
  }
  place.MustOpen();
}

}  // namespace kvkeep
