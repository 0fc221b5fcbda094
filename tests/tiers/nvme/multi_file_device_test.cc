#include "tiers/nvme/multi_file_device.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <set>
#include <thread>

#include "tiers/base/mutex.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

// Records requests, and decides their results.
struct Seen {
  std::vector<std::pair<int, uint64_t>> operations;  // file, offset
  std::vector<IoOperation::Done> done;               // of each
  Mutex mu;
  CondVar changed;
  std::vector<int> syncs ABSL_GUARDED_BY(mu);
  size_t syncs_together ABSL_GUARDED_BY(mu) = 0;  // none ends before this many have begun
  bool too_few ABSL_GUARDED_BY(mu) = false;       // did
  std::set<int> failing ABSL_GUARDED_BY(mu);      // files whose next sync fails, once

  // Returns the syncs since the last call, in order of the files.
  std::vector<int> TakeSyncs() {
    MutexLock lock(&mu);
    std::vector<int> taken = std::exchange(syncs, {});
    std::sort(taken.begin(), taken.end());
    return taken;
  }
  void EndAll() {
    for (IoOperation::Done& one : std::exchange(done, {})) std::move(one)(absl::OkStatus());
  }
  absl::Status Sync(int file) {
    MutexLock lock(&mu);
    syncs.push_back(file);
    changed.NotifyAll();
    while (syncs.size() < syncs_together && !too_few) {
      too_few = !changed.WaitFor(&mu, std::chrono::seconds(10));
    }
    return failing.erase(file) > 0 ? absl::DataLossError(std::to_string(file)) : absl::OkStatus();
  }
};

class SpyDevice final : public Device {
 public:
  SpyDevice(int number, Seen* seen) : number_(number), seen_(seen) {}
  void Submit(IoOperation operation) override {
    seen_->operations.emplace_back(number_, operation.offset.value());
    seen_->done.push_back(std::move(operation.done));
  }
  absl::Status Sync() override { return seen_->Sync(number_); }
  uint64_t size_bytes() const override { return 0; }

 private:
  const int number_;
  Seen* const seen_;
};

std::unique_ptr<MultiFileDevice> Make(Seen* seen, int count = 3) {
  std::vector<std::unique_ptr<Device>> files;
  std::vector<uint64_t> sizes(static_cast<size_t>(count), 2 * kMiB);
  for (int i = 0; i < count; ++i) files.push_back(std::make_unique<SpyDevice>(i, seen));
  sizes.back() = kMiB;
  return std::make_unique<MultiFileDevice>(std::move(files), std::move(sizes), 2 * kMiB);
}

IoOperation Write(uint64_t offset, size_t bytes) {
  return {.kind = IoOperation::Kind::kWrite,
          .offset = DeviceOffset(offset),
          .bytes = bytes,
          .done = [](const absl::Status&) {}};
}

// Returns true if `operation` aborts the process.
bool Dies(IoOperation operation) {
  const pid_t child = fork();
  if (child == 0) {
    Seen seen;
    const auto device = Make(&seen);
    close(STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);
    device->Submit(std::move(operation));
    _exit(0);
  }
  int how = 0;
  REQUIRE(waitpid(child, &how, 0) == child);
  return WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT;
}

}  // namespace

TEST_CASE("an operation goes to the file that holds its blocks") {
  Seen seen;
  const auto device = Make(&seen);
  CHECK(device->size_bytes() == 5 * kMiB);
  device->Submit(Write(4096, 4096));
  device->Submit(Write(2 * kMiB + 4096, 2 * kMiB - 4096));
  device->Submit(Write(5 * kMiB - 4096, 4096));
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

TEST_CASE("a sync is of the files that were written since the last one, the first is of all") {
  Seen seen;
  const auto device = Make(&seen);
  CHECK(device->Sync().ok());
  CHECK(seen.TakeSyncs() == std::vector<int>{0, 1, 2});
  CHECK(device->Sync().ok());
  CHECK(seen.TakeSyncs().empty());

  IoOperation read = Write(4 * kMiB + 4096, 4096);
  read.kind = IoOperation::Kind::kRead;
  device->Submit(std::move(read));
  device->Submit(Write(2 * kMiB + 4096, 4096));
  CHECK(device->Sync().ok());  // neither has ended
  CHECK(seen.TakeSyncs().empty());
  seen.EndAll();
  CHECK(device->Sync().ok());
  CHECK(seen.TakeSyncs() == std::vector<int>{1});
  CHECK(device->Sync().ok());
  CHECK(seen.TakeSyncs().empty());
}

TEST_CASE("a write that failed may have changed its file") {
  Seen seen;
  const auto device = Make(&seen);
  CHECK(device->Sync().ok());
  seen.TakeSyncs();
  absl::Status told;
  IoOperation write = Write(4096, 4096);
  write.done = [&](absl::Status status) { told = std::move(status); };
  device->Submit(std::move(write));
  std::move(seen.done.at(0))(absl::DataLossError("torn"));
  CHECK(told == absl::DataLossError("torn"));
  CHECK(device->Sync().ok());
  CHECK(seen.TakeSyncs() == std::vector<int>{0});
}

TEST_CASE("files are synced at once, as many as there are threads for") {
  constexpr int kFiles = 2 * MultiFileDevice::kSyncsAtOnce;
  Seen seen;
  const auto device = Make(&seen, kFiles);
  {
    MutexLock lock(&seen.mu);
    seen.syncs_together = MultiFileDevice::kSyncsAtOnce;
  }
  CHECK(device->Sync().ok());
  CHECK(seen.TakeSyncs().size() == kFiles);
  MutexLock lock(&seen.mu);
  CHECK_FALSE(seen.too_few);
}

TEST_CASE("a sync that fails for one file reaches the others, and the device's fail for good") {
  Seen seen;
  const auto device = Make(&seen);
  {
    MutexLock lock(&seen.mu);
    seen.failing = {2};  // once: its loss is not reported again
  }
  CHECK(device->Sync() == absl::DataLossError("2"));
  CHECK(seen.TakeSyncs() == std::vector<int>{0, 1, 2});
  device->Submit(Write(4096, 4096));
  seen.EndAll();
  CHECK(device->Sync() == absl::DataLossError("2"));
}

TEST_CASE("a sync that finds another under way ends after that one") {
  Seen seen;
  const auto device = Make(&seen);
  CHECK(device->Sync().ok());
  seen.TakeSyncs();
  device->Submit(Write(4096, 4096));
  seen.EndAll();
  {
    MutexLock lock(&seen.mu);
    seen.syncs_together = 2;  // the first waits for another that never comes, until told
  }
  std::atomic<int> ended = 0;
  absl::Status of_first, of_second;
  std::thread first([&] {
    of_first = device->Sync();
    ++ended;
  });
  {
    MutexLock lock(&seen.mu);
    while (seen.syncs.empty()) seen.changed.Wait(&seen.mu);
  }
  std::thread second([&] {
    of_second = device->Sync();  // of nothing, but the first one's data is not stable yet
    ++ended;
  });
  // A sleep can only make the test miss something: a second sync that does not wait ends within it.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(ended == 0);
  {
    MutexLock lock(&seen.mu);
    seen.syncs_together = 0;
    seen.changed.NotifyAll();
  }
  first.join();
  second.join();
  CHECK(ended == 2);
  CHECK(of_first.ok());
  CHECK(of_second.ok());
}

}  // namespace kvkeep
