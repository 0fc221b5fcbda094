#include "tests/bench/store/simulated_device.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <future>

#include "tests/fakes/aligned_bytes.h"

namespace kvkeep {
namespace {

using std::chrono::microseconds;

constexpr SimulatedDrive kDrive = {
    .bytes = 64 * kBlockBytes, .latency = microseconds(100), .bytes_per_second = 1e9};

absl::Status Do(Device& device, IoOperation::Kind kind, uint64_t block, std::byte* data) {
  std::promise<absl::Status> told;
  device.Submit({.kind = kind,
                 .offset = DeviceOffset(block * kBlockBytes),
                 .data = data,
                 .bytes = kBlockBytes,
                 .done = [&told](absl::Status status) { told.set_value(std::move(status)); }});
  return told.get_future().get();
}

}  // namespace

TEST_CASE("a bus moves one operation after the other, and the latency is hidden but once") {
  SimulatedBus bus(kDrive);
  const MonotonicTime now = std::chrono::seconds(5);
  CHECK(bus.DoneAt(now, 1'000'000) == now + microseconds(1'100));
  CHECK(bus.DoneAt(now, 1'000'000) == now + microseconds(2'100));
  // An idle bus saves no time up.
  const MonotonicTime later = now + microseconds(10'000);
  CHECK(bus.DoneAt(later, 500'000) == later + microseconds(600));
}

TEST_CASE("a simulated drive gives back what was written, and no sooner than it could") {
  SimulatedDevice drive(kDrive, 1);
  AlignedBytes bytes(2 * kBlockBytes);
  std::fill_n(bytes.data(), kBlockBytes, std::byte{7});
  const auto began = std::chrono::steady_clock::now();
  REQUIRE(Do(drive.io(), IoOperation::Kind::kWrite, 3, bytes.data()).ok());
  REQUIRE(Do(drive.io(), IoOperation::Kind::kRead, 3, bytes.data() + kBlockBytes).ok());
  CHECK(std::chrono::steady_clock::now() - began >= 2 * kDrive.latency);
  CHECK(bytes.data()[kBlockBytes] == std::byte{7});
  CHECK(bytes.data()[2 * kBlockBytes - 1] == std::byte{7});
  CHECK(drive.capacity_blocks() == BlockCount(64));
}

}  // namespace kvkeep
