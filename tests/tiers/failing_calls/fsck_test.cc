// Check and rebuild of a device, whichever call fails.
#include <sys/resource.h>

#include <catch2/catch.hpp>

#include "tests/fakes/failing_calls.h"
#include "tests/tiers/failing_calls/descriptors.h"
#include "tests/tiers/fsck/store_on_disk.h"

namespace kvkeep {
namespace {

constexpr uint64_t kChunks = 3;

void PutSome(StoreOnDisk& store) {
  REQUIRE(store.Start());
  for (uint64_t name = 0; name < kChunks; ++name) store.Put(name, 10'000, 100);
  store.Stop();
}

}  // namespace

TEST_CASE("a check that meets a failing call says so, and never that the device is clean") {
  StoreOnDisk store;
  PutSome(store);
  FsckOptions options = store.fsck_options();
  options.threads = 1;
  const auto attempt = [&](const CallFault& fault) {
    const size_t before = OpenDescriptors();
    std::string failed;
    {
      const FailingCalls calls(fault);
      const absl::StatusOr<FsckReport> report = Fsck(options);
      failed = calls.failed();
      INFO(failed << ": " << report.status().ToString());
      if (report.ok()) {
        INFO(Text(report->findings));
        const bool unread = failed == "pread" && fault.error != EINTR;
        CHECK_FALSE((unread && report->clean()));
        if (failed.empty()) CHECK(report->clean());
      } else {
        CHECK(IsOneLine(report.status()));
      }
    }
    CHECK(OpenDescriptors() == before);
    return failed;
  };
  CHECK(FailEachCall({EIO, EINTR}, attempt) > 20);
  CHECK(store.Check().clean());
}

TEST_CASE("a rebuild that failed at any call is done by the next one, and no chunk is lost") {
  StoreOnDisk store;
  PutSome(store);
  FsckOptions options = store.fsck_options();
  options.threads = 1;
  const auto attempt = [&](const CallFault& fault) {
    const size_t before = OpenDescriptors();
    std::string failed;
    absl::Status status;
    uint64_t chunks = 0;
    {
      const FailingCalls calls(fault);
      const absl::StatusOr<RebuildReport> report = RebuildIndex(options);
      status = report.status();
      failed = calls.failed();
      if (report.ok()) chunks = report->chunks;
    }
    INFO(failed << ": " << status.ToString());
    if (!status.ok()) CHECK(IsOneLine(status));
    if (failed.empty()) CHECK((status.ok() && chunks == kChunks));
    CHECK(OpenDescriptors() == before);
    // The rebuild leaves an unreadable image out, and the map forgets it: it is no chunk any more.
    // It is put again for the next attempt.
    if (status.ok() && chunks < kChunks) {
      CHECK(failed == "pread");
      REQUIRE(store.Start());
      for (uint64_t name = 0; name < kChunks; ++name) {
        if (store.Get(name) != "hit") store.Put(name, 10'000, 100);
      }
      store.Stop();
    }
    INFO("after that");
    CHECK(RebuildIndex(options)->chunks == kChunks);
    CHECK(store.Check().clean());
    return failed;
  };
  REQUIRE(RebuildIndex(options).ok());  // so that each attempt finds an index that was lost before
  CHECK(FailEachCall({EIO}, attempt) > 20);
  REQUIRE(store.Start());
  for (uint64_t name = 0; name < kChunks; ++name) CHECK(store.Get(name) == "hit");
}

TEST_CASE("a rebuild that runs out of descriptors anywhere is done by the next one") {
  StoreOnDisk store;
  PutSome(store);
  FsckOptions options = store.fsck_options();
  options.threads = 1;
  REQUIRE(RebuildIndex(options).ok());
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  int failed = 0;
  bool in_index = false;
  for (rlim_t more = 0; more < 40; ++more) {
    const rlimit few{.rlim_cur = OpenDescriptors() + more, .rlim_max = before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    const absl::StatusOr<RebuildReport> report = RebuildIndex(options);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    INFO(more << ": " << report.status().ToString());
    if (report.ok()) continue;
    ++failed;
    CHECK(IsOneLine(report.status()));
    in_index |= report.status().message().find("index.new: open") != absl::string_view::npos;
  }
  CHECK(failed > 5);
  CHECK(in_index);
  CHECK(RebuildIndex(options)->chunks == kChunks);
  CHECK(store.Check().clean());
}

}  // namespace kvkeep
