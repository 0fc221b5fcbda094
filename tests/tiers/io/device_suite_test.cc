// Behaviour of every Device, over both engines and the simulator's fake: a fake with other
// behaviour would make the tests above it worthless.
#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "tests/fakes/memory_device.h"
#include "tests/tiers/io/io_test_util.h"
#include "tests/tiers/io/rings.h"
#include "tiers/base/executor.h"
#include "tiers/io/io_engine.h"

namespace kvkeep {
namespace {

using Kind = IoOperation::Kind;

constexpr size_t kDeviceBytes = 16 * kMiB;

// One device of each kind, with the objects it needs.
class World {
 public:
  explicit World(const std::string& kind, bool read_only = false) : file_(kDeviceBytes) {
    if (kind == "memory") {
      executor_ = std::make_unique<ThreadPool>("memory-disk", 2);
      device_ = std::make_unique<MemoryDevice>(std::make_shared<MemoryDisk>(kDeviceBytes),
                                               executor_.get(), read_only);
      return;
    }
    auto engine = CreateIoEngine({.mode = kind == "uring" ? IoMode::kUring : IoMode::kThreads});
    REQUIRE(engine.ok());
    engine_ = *std::move(engine);
    auto device = engine_->Open({.path = file_.path(), .depth = 8, .read_only = read_only});
    REQUIRE(device.ok());
    device_ = *std::move(device);
  }

  Device& device() { return *device_; }
  void DestroyDevice() { device_ = nullptr; }

 private:
  TempFile file_;
  std::unique_ptr<IoEngine> engine_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Device> device_;
};

std::vector<std::string> KindsOfDevice() {
  std::vector<std::string> kinds = {"threads", "memory"};
  if (HasRings()) kinds.insert(kinds.begin(), "uring");
  return kinds;
}

#define EVERY_KIND_OF_DEVICE() GENERATE(from_range(KindsOfDevice()))

}  // namespace

TEST_CASE("what is written at a place is read back from it, in all sizes") {
  World world(EVERY_KIND_OF_DEVICE());
  CHECK(world.device().size_bytes() == kDeviceBytes);
  for (const size_t bytes : {kBlockBytes, 3 * kBlockBytes, size_t{kMiB}, size_t{kMiB} + kBlockBytes,
                             size_t{5 * kMiB}, kDeviceBytes}) {
    CAPTURE(bytes);
    AlignedBytes written(bytes), read(bytes);
    FillPattern(written.span(), bytes);
    const uint64_t offset = (kDeviceBytes - bytes) / 2 / kBlockBytes * kBlockBytes;
    REQUIRE(Write(world.device(), offset, written.span()).ok());
    REQUIRE(Read(world.device(), offset, read.span()).ok());
    CHECK(SameBytes(written.span(), read.span()));
  }
  CHECK(world.device().Sync().ok());
}

TEST_CASE("a write changes its own blocks and no others") {
  World world(EVERY_KIND_OF_DEVICE());
  AlignedBytes ones(8 * kBlockBytes), twos(2 * kBlockBytes), read(8 * kBlockBytes);
  FillPattern(ones.span(), 1);
  FillPattern(twos.span(), 2);
  REQUIRE(Write(world.device(), kMiB, ones.span()).ok());
  REQUIRE(Write(world.device(), kMiB + 3 * kBlockBytes, twos.span()).ok());
  REQUIRE(Read(world.device(), kMiB, read.span()).ok());
  std::memcpy(ones.data() + 3 * kBlockBytes, twos.data(), twos.size());
  CHECK(SameBytes(ones.span(), read.span()));
}

TEST_CASE("many operations from many threads all complete, each once, with the right bytes") {
  World world(EVERY_KIND_OF_DEVICE());
  constexpr int kThreads = 4, kRounds = 30, kBatch = 8;
  constexpr size_t kBytes = 4 * kBlockBytes;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      AlignedBytes written(kBatch * kBytes), read(kBatch * kBytes);
      const uint64_t base = static_cast<uint64_t>(t) * kMiB;
      for (int round = 0; round < kRounds; ++round) {
        FillPattern(written.span(), static_cast<uint64_t>(t * 1000 + round));
        for (const Kind kind : {Kind::kWrite, Kind::kRead}) {
          const std::span<std::byte> memory = (kind == Kind::kRead ? read : written).span();
          Completions completions;
          for (int i = 0; i < kBatch; ++i) {
            const size_t at = static_cast<size_t>(i) * kBytes;
            world.device().Submit(
                MakeOperation(kind, base + at, memory.subspan(at, kBytes), completions.Expect()));
          }
          for (const absl::Status& status : completions.Wait(kBatch)) wrong += !status.ok();
        }
        wrong += !SameBytes(written.span(), read.span());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a callback never runs inside Submit, not even that of a refused operation") {
  World world(EVERY_KIND_OF_DEVICE());
  AlignedBytes memory(kBlockBytes);
  const size_t bytes = GENERATE(size_t{4096}, size_t{512});  // 512 is refused
  constexpr size_t kLength = 500;
  // A chain: each callback submits the next. A callback run inside Submit would be inside another
  // one.
  static thread_local int depth = 0;
  std::atomic<int> nested = 0;
  std::atomic<size_t> left = kLength;
  Completions completions;
  std::function<void()> next = [&] {
    world.device().Submit(
        MakeOperation(Kind::kRead, 0, memory.span().first(bytes),
                      [&, done = completions.Expect()](absl::Status status) mutable {
                        if (++depth > 1) ++nested;
                        if (--left > 0) next();
                        --depth;
                        std::move(done)(std::move(status));
                      }));
  };
  ++depth;  // this thread must not run one either
  next();
  CHECK(completions.Wait(kLength).size() == kLength);
  --depth;
  CHECK(nested == 0);
}

TEST_CASE("what is our own bug is Internal, and nothing is moved") {
  World world(EVERY_KIND_OF_DEVICE());
  AlignedBytes memory(4 * kBlockBytes), before(kBlockBytes), after(kBlockBytes);
  FillPattern(before.span(), 3);
  REQUIRE(Write(world.device(), 0, before.span()).ok());
  const auto write = [&](uint64_t offset, size_t skip, size_t bytes) {
    return Write(world.device(), offset, memory.span().subspan(skip, bytes)).code();
  };
  CHECK(write(512, 0, kBlockBytes) == absl::StatusCode::kInternal);
  CHECK(write(0, 512, kBlockBytes) == absl::StatusCode::kInternal);
  CHECK(write(0, 0, 512) == absl::StatusCode::kInternal);
  CHECK(write(0, 0, 0) == absl::StatusCode::kInternal);
  CHECK(write(kDeviceBytes, 0, kBlockBytes) == absl::StatusCode::kInternal);
  CHECK(write(kDeviceBytes - kBlockBytes, 0, 2 * kBlockBytes) == absl::StatusCode::kInternal);
  CHECK(write(~uint64_t{0} / kBlockBytes * kBlockBytes, 0, 2 * kBlockBytes) ==
        absl::StatusCode::kInternal);
  CHECK(Read(world.device(), kDeviceBytes, memory.span()).code() == absl::StatusCode::kInternal);
  REQUIRE(Read(world.device(), 0, after.span()).ok());
  CHECK(SameBytes(before.span(), after.span()));
}

TEST_CASE("a read-only device reads, and refuses writes with FailedPrecondition") {
  World world(EVERY_KIND_OF_DEVICE(), /*read_only=*/true);
  AlignedBytes memory(kBlockBytes);
  CHECK(Write(world.device(), 0, memory.span()).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Read(world.device(), 0, memory.span()).ok());
  CHECK(world.device().Sync().ok());
}

TEST_CASE("destroying a device waits for its operations and their callbacks") {
  World world(EVERY_KIND_OF_DEVICE());
  AlignedBytes memory(4 * kMiB);
  std::atomic<int> ended = 0;
  for (size_t at = 0; at < memory.size(); at += 64 * kKiB) {
    world.device().Submit(MakeOperation(Kind::kWrite, at, memory.span().subspan(at, 64 * kKiB),
                                        [&](absl::Status) { ++ended; }));
  }
  world.DestroyDevice();
  CHECK(ended == 64);
}

}  // namespace kvkeep
