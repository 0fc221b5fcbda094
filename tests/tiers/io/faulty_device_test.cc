#include "tests/fakes/faulty_device.h"

#include <catch2/catch.hpp>
#include <optional>
#include <set>

#include "tests/fakes/manual_executor.h"
#include "tests/fakes/memory_device.h"
#include "tests/tiers/io/io_test_util.h"

namespace kvkeep {
namespace {

using Kind = IoOperation::Kind;

constexpr size_t kFaultyBytes = 64 * kBlockBytes;

// A faulty disk on its own executor, as a simulator has it.
class FaultyRig {
 public:
  explicit FaultyRig(const FaultOptions& options, uint64_t seed = 1)
      : below_(disk_, &executor_), device_(&below_, &executor_, seed, options) {}

  absl::Status Run(Kind kind, uint64_t block, std::span<std::byte> bytes) {
    std::optional<absl::Status> result;
    device_.Submit(MakeOperation(kind, block * kBlockBytes, bytes,
                                 [&](absl::Status status) { result = std::move(status); }));
    executor_.RunAll();
    REQUIRE(result.has_value());
    return *result;
  }
  std::span<std::byte> OnDisk(uint64_t block, uint64_t blocks) {
    return disk_->bytes().subspan(block * kBlockBytes, blocks * kBlockBytes);
  }

  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>(kFaultyBytes);
  ManualExecutor executor_;
  MemoryDevice below_;
  FaultyDevice device_;
};

size_t DifferentBits(std::span<const std::byte> a, std::span<const std::byte> b) {
  size_t bits = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    bits += static_cast<size_t>(std::popcount(std::to_integer<unsigned>(a[i] ^ b[i])));
  }
  return bits;
}

}  // namespace

TEST_CASE("without faults a FaultyDevice is the device below") {
  FaultyRig h({});
  AlignedBytes written(4 * kBlockBytes), read(4 * kBlockBytes);
  FillPattern(written.span(), 1);
  CHECK(h.Run(Kind::kWrite, 7, written.span()).ok());
  CHECK(h.Run(Kind::kRead, 7, read.span()).ok());
  CHECK(SameBytes(written.span(), read.span()));
  CHECK(h.device_.size_bytes() == kFaultyBytes);
  CHECK(h.Run(Kind::kRead, 63, read.span()).code() == absl::StatusCode::kInternal);
  CHECK(h.device_.Sync().ok());
  CHECK(h.below_.stats().syncs == 1);
}

TEST_CASE("injected errors are DataLoss and move nothing") {
  FaultyRig h({.read_error = 1, .write_error = 1});
  AlignedBytes ones(kBlockBytes), zeros(kBlockBytes);
  FillPattern(ones.span(), 1);
  CHECK(h.Run(Kind::kWrite, 0, ones.span()).code() == absl::StatusCode::kDataLoss);
  CHECK(SameBytes(h.OnDisk(0, 1), zeros.span()));
  CHECK(h.Run(Kind::kRead, 0, zeros.span()).code() == absl::StatusCode::kDataLoss);
  h.device_.set_options({});  // faults can be lifted
  CHECK(h.Run(Kind::kWrite, 0, ones.span()).ok());
  CHECK(h.device_.stats().read_errors == 1);
  CHECK(h.device_.stats().write_errors == 1);
}

TEST_CASE("a corrupt read flips one bit in memory only, a corrupt write one on the disk only") {
  AlignedBytes written(4 * kBlockBytes), copy(4 * kBlockBytes), read(4 * kBlockBytes);
  FillPattern(written.span(), 1);
  std::memcpy(copy.data(), written.data(), copy.size());
  SECTION("read") {
    FaultyRig h({.corrupt_read = 1});
    CHECK(h.Run(Kind::kWrite, 0, written.span()).ok());
    CHECK(h.Run(Kind::kRead, 0, read.span()).ok());
    CHECK(DifferentBits(written.span(), read.span()) == 1);
    CHECK(SameBytes(h.OnDisk(0, 4), written.span()));
  }
  SECTION("write") {
    FaultyRig h({.corrupt_write = 1});
    CHECK(h.Run(Kind::kWrite, 0, written.span()).ok());
    CHECK(DifferentBits(written.span(), h.OnDisk(0, 4)) == 1);
    CHECK(SameBytes(written.span(), copy.span()));
  }
}

TEST_CASE("a torn write leaves blocks from the start, and may be reported OK") {
  const double reported_ok = GENERATE(0.0, 1.0);
  const uint64_t seed = GENERATE(range(1, 20));
  FaultyRig h({.torn_write = 1, .torn_reported_ok = reported_ok}, seed);
  AlignedBytes written(8 * kBlockBytes), zeros(8 * kBlockBytes);
  FillPattern(written.span(), 1);
  CHECK(h.Run(Kind::kWrite, 0, written.span()).ok() == (reported_ok == 1.0));
  size_t reached = 0;
  const auto block = [](const AlignedBytes& bytes, size_t i) {
    return bytes.span().subspan(i * kBlockBytes, kBlockBytes);
  };
  while (reached < 8 && SameBytes(h.OnDisk(reached, 1), block(written, reached))) ++reached;
  CHECK(reached < 8);
  CHECK(SameBytes(h.OnDisk(reached, 8 - reached), zeros.span().subspan(reached * kBlockBytes)));
}

TEST_CASE("a misdirected write lands whole at another place of the device") {
  FaultyRig h({.misdirected_write = 1}, 3);
  AlignedBytes written(2 * kBlockBytes), zeros(2 * kBlockBytes);
  FillPattern(written.span(), 1);
  CHECK(h.Run(Kind::kWrite, 10, written.span()).ok());
  CHECK(SameBytes(h.OnDisk(10, 2), zeros.span()));
  int found = 0;
  for (uint64_t at = 0; at < 63; ++at) found += SameBytes(h.OnDisk(at, 2), written.span());
  CHECK(found == 1);
}

TEST_CASE("a short read brings the beginning, a misdirected one whole blocks of another place") {
  for (const bool is_short : {true, false}) {
    FaultyRig h({.short_read = is_short ? 1.0 : 0.0, .misdirected_read = 1}, 3);
    AlignedBytes read(8 * kBlockBytes);
    for (uint64_t i = 0; i < 64; ++i) FillPattern(h.OnDisk(i, 1), i + 1);
    CHECK(h.Run(Kind::kRead, 20, read.span()).ok());
    CHECK_FALSE(SameBytes(read.span(), h.OnDisk(20, 8)));
    size_t right = 0;
    while (
        SameBytes(read.span().subspan(right * kBlockBytes, kBlockBytes), h.OnDisk(20 + right, 1))) {
      ++right;
    }
    int found = 0;
    for (uint64_t at = 0; at <= 56; ++at) found += SameBytes(h.OnDisk(at, 8), read.span());
    CHECK(found == (is_short ? 0 : 1));
    CHECK(h.device_.stats().short_reads == (is_short ? 1 : 0));
    CHECK((is_short || right == 0));
  }
}

TEST_CASE("what is stuck goes on when told to, or when faults are lifted") {
  for (const bool lifted : {true, false}) {
    FaultyRig h({.stuck = 1});
    AlignedBytes memory(kBlockBytes);
    int ended = 0;
    for (int i = 0; i < 10; ++i) {
      h.device_.Submit(
          MakeOperation(Kind::kWrite, 0, memory.span(), [&ended](absl::Status) { ++ended; }));
    }
    h.executor_.RunAll();
    CHECK(ended == 0);
    if (lifted) h.device_.set_options({});
    if (!lifted) CHECK(h.device_.Unstick() == 10);
    h.executor_.RunAll();
    CHECK(ended == 10);
  }
}

TEST_CASE("a device that is gone is Unavailable in everything until it is back") {
  FaultyRig h({});
  AlignedBytes memory(kBlockBytes);
  h.device_.SetGone(true);
  CHECK(absl::IsUnavailable(h.Run(Kind::kWrite, 1, memory.span())));
  CHECK(absl::IsUnavailable(h.Run(Kind::kRead, 1, memory.span())));
  CHECK(absl::IsUnavailable(h.device_.Sync()));
  h.device_.SetGone(false);
  CHECK(h.Run(Kind::kWrite, 1, memory.span()).ok());
  CHECK(h.device_.Sync().ok());
}

TEST_CASE("a sync that fails or lies makes nothing stable") {
  const std::vector<FaultOptions> faults = {{.sync_error = 1}, {.sync_lies = 1}, {}};
  for (size_t i = 0; i < faults.size(); ++i) {
    ManualExecutor executor;
    const auto disk = std::make_shared<MemoryDisk>(kFaultyBytes, /*volatile_cache=*/true);
    MemoryDevice below(disk, &executor);
    FaultyDevice device(&below, &executor, 1, faults[i]);
    AlignedBytes memory(kBlockBytes);
    device.Submit(MakeOperation(Kind::kWrite, 0, memory.span(), [](absl::Status) {}));
    executor.RunAll();
    CHECK(disk->unsynced_blocks() == 1);
    CHECK(device.Sync().ok() == (i > 0));
    CHECK(disk->unsynced_blocks() == (i == 2 ? 0 : 1));
  }
}

TEST_CASE("a power cut drops, keeps, tears and reorders what was not synced, and nothing else") {
  bool kept_all = false, kept_none = false, kept_older = false, torn = false;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    MemoryDisk disk(8 * kBlockBytes, /*volatile_cache=*/true);
    AlignedBytes versions(3 * kBlockBytes);  // ever the same byte: 1, 2, 3
    for (size_t v = 0; v < 3; ++v) {
      std::memset(versions.data() + v * kBlockBytes, static_cast<int>(v + 1), kBlockBytes);
    }
    const auto write = [&](uint64_t block, size_t version) {
      disk.Write(block * kBlockBytes, versions.data() + (version - 1) * kBlockBytes, kBlockBytes);
    };
    write(0, 1);
    write(1, 1);
    disk.Sync();
    write(1, 2);
    write(1, 3);
    disk.PowerCut(seed);
    const auto bytes = disk.bytes();
    CHECK(SameBytes(bytes.first(kBlockBytes), versions.span().first(kBlockBytes)));
    std::set<int> found;
    for (size_t at = 0; at < kBlockBytes; at += 512) {
      const auto sector = bytes.subspan(kBlockBytes + at, 512);
      const auto first = std::to_integer<int>(sector[0]);
      CHECK((first >= 1 && first <= 3));
      CHECK(std::all_of(sector.begin(), sector.end(),
                        [&](std::byte byte) { return std::to_integer<int>(byte) == first; }));
      found.insert(first);
    }
    torn |= found.size() > 1;
    kept_all |= found == std::set<int>{3};
    kept_none |= found == std::set<int>{1};
    kept_older |= found.contains(2);
    CHECK(disk.unsynced_blocks() == 0);
  }
  CHECK((kept_all && kept_none && kept_older && torn));
}

TEST_CASE("what a drive lied about goes with its power, whatever syncs succeeded after the lie") {
  bool lost = false, kept = false;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    for (const bool again : {false, true}) {
      MemoryDisk disk(2 * kBlockBytes, /*volatile_cache=*/true);
      AlignedBytes ones(kBlockBytes);
      std::memset(ones.data(), 1, kBlockBytes);
      disk.SetLies(1, seed);
      disk.Write(0, ones.data(), kBlockBytes);
      disk.Sync();
      CHECK(disk.lies() == 1);
      const bool lied = disk.Forgot(0);
      disk.SetLies(0, seed);
      if (again) disk.Write(0, ones.data(), kBlockBytes);
      disk.Sync();
      CHECK(disk.Forgot(0) == (lied && !again));
      CHECK(disk.unsynced_blocks() == 0);
      CHECK(SameBytes(disk.bytes().first(kBlockBytes), ones.span()));  // the drive's cache has it
      disk.PowerCut(seed);
      const bool there = SameBytes(disk.bytes().first(kBlockBytes), ones.span());
      if (!lied || again) CHECK(there);
      lost |= !there;
      kept |= lied && there;
    }
  }
  CHECK((lost && kept));
}

TEST_CASE("delayed operations overtake each other and still complete once") {
  FaultyRig h({.delay = 0.7}, 5);
  AlignedBytes memory(kBlockBytes);
  std::vector<int> order;
  for (int i = 0; i < 50; ++i) {
    h.device_.Submit(MakeOperation(Kind::kRead, 0, memory.span(),
                                   [&order, i](absl::Status) { order.push_back(i); }));
  }
  h.executor_.RunAll();
  CHECK(order.size() == 50);
  CHECK_FALSE(std::is_sorted(order.begin(), order.end()));
  CHECK(h.device_.stats().delayed > 0);
}

TEST_CASE("the same seed gives the same faults") {
  const auto run = [](uint64_t seed) {
    FaultyRig h({.read_error = 0.2,
                 .write_error = 0.2,
                 .corrupt_write = 0.2,
                 .torn_write = 0.2,
                 .misdirected_write = 0.2,
                 .delay = 0.3},
                seed);
    AlignedBytes memory(4 * kBlockBytes);
    FillPattern(memory.span(), 1);
    std::string outcome;
    for (uint64_t i = 0; i < 200; ++i) {
      const Kind kind = i % 3 == 0 ? Kind::kRead : Kind::kWrite;
      if (kind == Kind::kRead) {
        AlignedBytes scratch(4 * kBlockBytes);
        outcome += h.Run(kind, i % 60, scratch.span()).ok() ? 'o' : 'x';
      } else {
        outcome += h.Run(kind, i % 60, memory.span()).ok() ? 'O' : 'X';
      }
    }
    const std::span<const std::byte> disk = h.disk_->bytes();
    return outcome + std::string(reinterpret_cast<const char*>(disk.data()), disk.size());
  };
  CHECK(run(1) == run(1));
  CHECK(run(1) != run(2));
}

TEST_CASE("after Kill no callback runs, no memory is touched, and writes end in every way") {
  bool whole = false, partly = false, unwritten = false;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    FaultyRig h({.delay = 0.5}, seed);
    auto written = std::make_unique<AlignedBytes>(8 * kBlockBytes);
    auto read = std::make_unique<AlignedBytes>(8 * kBlockBytes);
    FillPattern(written->span(), 1);
    AlignedBytes copy(8 * kBlockBytes);
    std::memcpy(copy.data(), written->data(), copy.size());
    auto owned = std::make_shared<int>();  // what callbacks hold is released
    int ran = 0;
    for (uint64_t i = 0; i < 4; ++i) {
      h.device_.Submit(MakeOperation(Kind::kWrite, i * 8 * kBlockBytes, written->span(),
                                     [&ran, owned](absl::Status) { ++ran; }));
      h.device_.Submit(
          MakeOperation(Kind::kRead, 0, read->span(), [&ran, owned](absl::Status) { ++ran; }));
    }
    for (uint64_t i = 0; i < seed % 12; ++i) h.executor_.RunOne();  // killed at any moment
    const int ran_before = ran;
    h.device_.Kill();
    CHECK(owned.use_count() == 1);
    written = nullptr;  // under ASAN a touch of it is found
    read = nullptr;
    h.device_.Submit(MakeOperation(Kind::kRead, 0, copy.span(), [&](absl::Status) { ++ran; }));
    h.executor_.RunAll();
    CHECK(ran == ran_before);

    for (uint64_t i = 0; i < 4; ++i) {  // every block is old or new, nothing else
      size_t fresh = 0;
      for (uint64_t b = 0; b < 8; ++b) {
        const auto on_disk = h.OnDisk(i * 8 + b, 1);
        const bool is_new = SameBytes(on_disk, copy.span().subspan(b * kBlockBytes, kBlockBytes));
        CHECK((is_new || on_disk[0] == std::byte{0}));
        fresh += is_new;
      }
      whole |= fresh == 8;
      partly |= fresh > 0 && fresh < 8;
      unwritten |= fresh == 0;
    }
  }
  CHECK(whole);
  CHECK(partly);
  CHECK(unwritten);
}

TEST_CASE("a dropped task of a MemoryDevice gives its callback back and lets the device go") {
  ManualExecutor executor;
  AlignedBytes memory(kBlockBytes);
  auto owned = std::make_shared<int>();
  {
    MemoryDevice device(kFaultyBytes, &executor);
    device.Submit(MakeOperation(Kind::kRead, 0, memory.span(), [owned](absl::Status) {}));
    CHECK(owned.use_count() == 2);
    executor.Drop();
    CHECK(owned.use_count() == 1);
  }
  CHECK(executor.idle());
}

}  // namespace kvkeep
