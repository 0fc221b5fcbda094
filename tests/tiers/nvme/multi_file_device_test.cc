#include "tiers/nvme/multi_file_device.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tiers/base/units.h"

namespace kvkeep {
namespace {

// Remembers what it was asked.
struct Seen {
  std::vector<std::pair<int, uint64_t>> operations;  // file, offset
  std::vector<int> syncs;
};

class SpyDevice final : public Device {
 public:
  SpyDevice(int number, Seen* seen, absl::Status sync)
      : number_(number), seen_(seen), sync_(sync) {}
  void Submit(IoOperation operation) override {
    seen_->operations.emplace_back(number_, operation.offset.value());
  }
  absl::Status Sync() override {
    seen_->syncs.push_back(number_);
    return sync_;
  }
  uint64_t size_bytes() const override { return 0; }

 private:
  const int number_;
  Seen* const seen_;
  const absl::Status sync_;
};

MultiFileDevice Make(Seen* seen, absl::Status first_sync = absl::OkStatus()) {
  std::vector<std::unique_ptr<Device>> files;
  for (int i = 0; i < 3; ++i) {
    files.push_back(std::make_unique<SpyDevice>(i, seen, i == 0 ? first_sync : absl::OkStatus()));
  }
  return MultiFileDevice(std::move(files), {2 * kMiB, 2 * kMiB, kMiB}, 2 * kMiB);
}

IoOperation Write(uint64_t offset, size_t bytes) {
  return {.kind = IoOperation::Kind::kWrite, .offset = DeviceOffset(offset), .bytes = bytes};
}

// True when `operation` aborts the process.
bool Dies(IoOperation operation) {
  const pid_t child = fork();
  if (child == 0) {
    Seen seen;
    MultiFileDevice device = Make(&seen);
    close(STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);
    device.Submit(std::move(operation));
    _exit(0);
  }
  int how = 0;
  REQUIRE(waitpid(child, &how, 0) == child);
  return WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT;
}

}  // namespace

TEST_CASE("an operation goes to the file that holds its blocks") {
  Seen seen;
  MultiFileDevice device = Make(&seen);
  CHECK(device.size_bytes() == 5 * kMiB);
  device.Submit(Write(4096, 4096));
  device.Submit(Write(2 * kMiB + 4096, 2 * kMiB - 4096));
  device.Submit(Write(5 * kMiB - 4096, 4096));
  CHECK(seen.operations ==
        std::vector<std::pair<int, uint64_t>>{{0, 4096}, {1, 4096}, {2, kMiB - 4096}});
}

TEST_CASE("an operation across files, past the end or onto a label is our bug") {
  CHECK_FALSE(Dies(Write(4096, 4096)));
  CHECK(Dies(Write(2 * kMiB - 4096, 8192)));
  CHECK(Dies(Write(5 * kMiB - 4096, 8192)));
  CHECK(Dies(Write(5 * kMiB, 4096)));
  CHECK(Dies(Write(2 * kMiB, 4096)));
  IoOperation read = Write(2 * kMiB, 4096);
  read.kind = IoOperation::Kind::kRead;
  CHECK_FALSE(Dies(std::move(read)));
}

TEST_CASE("a sync reaches every file and tells the first error") {
  Seen seen;
  MultiFileDevice device = Make(&seen, absl::DataLossError("first"));
  CHECK(device.Sync() == absl::DataLossError("first"));
  CHECK(seen.syncs == std::vector<int>{0, 1, 2});
}

}  // namespace kvkeep
