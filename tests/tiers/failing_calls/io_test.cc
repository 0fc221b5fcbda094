// The I/O engines, whichever call fails.
#include <catch2/catch.hpp>

#include "tests/fakes/failing_calls.h"
#include "tests/tiers/failing_calls/descriptors.h"
#include "tests/tiers/io/io_test_util.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tiers/io/io_engine.h"

namespace kvkeep {
namespace {

bool HasUring() { return CreateIoEngine({.mode = IoMode::kUring, .ring_entries = 8}).ok(); }

}  // namespace

TEST_CASE("a ring that cannot be set up is an error, or threads take its place") {
  if (!HasUring()) {
    WARN("skipped: no io_uring here");
    return;
  }
  for (const IoMode mode : {IoMode::kUring, IoMode::kAuto}) {
    const auto attempt = [&](const CallFault& fault) {
      const size_t before = OpenDescriptors();
      std::string failed;
      absl::Status status;
      {
        absl::StatusOr<std::unique_ptr<IoEngine>> engine;  // ends when nothing fails any more
        const FailingCalls calls(fault);
        engine = CreateIoEngine({.mode = mode, .ring_entries = 8});
        status = engine.status();
        failed = calls.failed();
      }
      INFO(failed << ": " << status.ToString());
      if (mode == IoMode::kAuto || failed.empty()) CHECK(status.ok());
      if (!status.ok()) CHECK(IsOneLine(status));
      CHECK(OpenDescriptors() == before);
      return failed;
    };
    CHECK(FailEachCall({ENOMEM, EINVAL}, attempt) > 4);
    for (const int error : {ENOSYS, EPERM, ENOMEM, EMFILE, EINVAL, EIO}) {
      for (const char* call : {"io_uring_queue_init_params", "io_uring_ring_dontfork", "eventfd"}) {
        attempt({.number = 0, .only = call, .error = error, .and_later = true});
      }
    }
  }
}

TEST_CASE("memory that cannot be registered is read into and written from all the same") {
  if (!HasUring()) {
    WARN("skipped: no io_uring here");
    return;
  }
  const TempFile file(kMiB);
  for (const char* call :
       {"io_uring_register_buffers_sparse", "io_uring_register_buffers_update_tag"}) {
    for (const int error : {ENOMEM, EFAULT, EIO}) {
      const FailingCalls calls({.number = 0, .only = call, .error = error});
      const auto engine = CreateIoEngine({.mode = IoMode::kUring, .ring_entries = 8}).value();
      AlignedBytes memory(64 * kKiB);
      const absl::Status registered = engine->RegisterBuffer(memory.span());
      INFO(call << ": " << registered.ToString());
      CHECK(calls.failed() == call);
      CHECK_FALSE(registered.ok());
      CHECK(IsOneLine(registered));
      CHECK(engine->stats().buffer_registration_failures == 1);
      const auto device = engine->Open({.path = file.path()}).value();
      CHECK(Write(*device, 0, memory.span()).ok());
    }
  }
}

TEST_CASE("a device that cannot be opened is an error that names it, and no descriptor is left") {
  const TempFile file(kMiB);
  const auto engine = CreateIoEngine({.mode = IoMode::kThreads}).value();
  const auto attempt = [&](const CallFault& fault) {
    const size_t before = OpenDescriptors();
    std::string failed;
    {
      const FailingCalls calls(fault);
      const auto device = engine->Open({.path = file.path(), .lock = true});
      failed = calls.failed();
      INFO(failed << " " << fault.error << ": " << device.status().ToString());
      if (failed.empty()) CHECK(device.ok());
      if (!device.ok()) {
        CHECK(IsOneLine(device.status()));
        CHECK(device.status().message().find(file.path()) != absl::string_view::npos);
      }
    }
    CHECK(OpenDescriptors() == before);
    return failed;
  };
  CHECK(FailEachCall({EIO, EINVAL, EINTR, ENOLCK, EMFILE, ELOOP, EWOULDBLOCK}, attempt) > 20);
}

TEST_CASE("O_DIRECT that cannot be taken off again is an error") {
  // On tmpfs, where it can be requested but is of no use.
  std::string path = "/dev/shm/kvkeep_io_test.XXXXXX";
  const UniqueFd file(mkstemp(path.data()));
  REQUIRE((file.valid() && ftruncate(file.get(), kMiB) == 0));
  const auto engine = CreateIoEngine({.mode = IoMode::kThreads}).value();
  {
    const FailingCalls calls({.number = 0, .only = "fcntl", .error = EIO});
    const auto device = engine->Open({.path = path});
    CHECK(device.ok() == calls.failed().empty());  // kernels before 6.6 refuse it at once
    if (!device.ok()) CHECK(IsOneLine(device.status()));
  }
  unlink(path.c_str());
}

TEST_CASE("reads, writes and syncs end with the error that the kernel gives, or are tried again") {
  const TempFile file(kMiB);
  const auto engine = CreateIoEngine({.mode = IoMode::kThreads, .fallback_threads = 1}).value();
  const auto device = engine->Open({.path = file.path()}).value();
  AlignedBytes memory(64 * kKiB);
  struct Case {
    const char* call;
    int error;
    bool ok;
  };
  for (const Case& one : std::initializer_list<Case>{{"pread", EIO, false},
                                                     {"pread", EINTR, true},
                                                     {"pread", EAGAIN, true},
                                                     {"pread", kMovesNothing, false},
                                                     {"pwrite", EIO, false},
                                                     {"pwrite", ENOSPC, false},
                                                     {"pwrite", EINTR, true},
                                                     {"fdatasync", EIO, false},
                                                     {"fdatasync", EINTR, true}}) {
    INFO(one.call << ", errno " << one.error);
    const FailingCalls calls({.number = 0, .only = one.call, .error = one.error});
    const std::string call = one.call;
    const absl::Status status = call == "pread"    ? Read(*device, 0, memory.span())
                                : call == "pwrite" ? Write(*device, 0, memory.span())
                                                   : device->Sync();
    CHECK(calls.failed() == call);
    CHECK(status.ok() == one.ok);
  }
}

}  // namespace kvkeep
