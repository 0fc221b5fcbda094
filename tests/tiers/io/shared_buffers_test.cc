#include "tiers/io/shared_buffers.h"

#include <catch2/catch.hpp>

#include "tests/fakes/aligned_bytes.h"
#include "tests/tiers/io/io_test_util.h"
#include "tiers/base/units.h"
#include "tiers/io/io_engine.h"

namespace kvkeep {
namespace {

std::unique_ptr<IoEngine> MakeRing(std::shared_ptr<const SharedBuffers> shared) {
  return CreateIoEngine({.mode = IoMode::kUring, .shared = std::move(shared)}).value();
}

std::unique_ptr<Device> Opened(IoEngine& engine, const DeviceOptions& options) {
  return engine.Open(options).value();
}

bool Says(const IoEngine& engine, const std::string& text) {
  return engine.describe().find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("rings take over what is pinned once, each in an order of its own") {
  absl::StatusOr<std::shared_ptr<SharedBuffers>> made = SharedBuffers::Create();
  if (absl::IsUnavailable(made.status())) {
    WARN("skipped: " << made.status());  // Linux before 6.13
    return;
  }
  REQUIRE(made.ok());
  const std::shared_ptr<SharedBuffers> shared = *std::move(made);
  AlignedBytes memory(4 * kMiB);
  const auto part = [&](size_t i) { return memory.span().subspan(i * kMiB, kMiB); };
  for (const size_t i : {0, 1, 2}) REQUIRE(shared->Pin(part(i)).ok());
  CHECK(absl::IsAlreadyExists(shared->Pin(part(1))));
  CHECK(shared->Find(part(2)).value().slot == 2);
  CHECK_FALSE(shared->Find(part(3)).has_value());
  CHECK_FALSE(shared->Find(part(1).first(kBlockBytes)).has_value());

  TempFile file(4 * kMiB);
  auto one = MakeRing(shared), two = MakeRing(shared), alone = MakeRing(nullptr);
  for (const size_t i : {0, 1, 2, 3}) {  // the last one is not pinned there
    REQUIRE(one->RegisterBuffer(part(i)).ok());
    REQUIRE(two->RegisterBuffer(part(3 - i)).ok());
    REQUIRE(alone->RegisterBuffer(part(i)).ok());
  }
  CHECK(one->stats().shared_buffers == 3);
  CHECK(two->stats().shared_buffers == 3);
  CHECK(alone->stats().shared_buffers == 0);
  CHECK(Says(*one, "4 registered buffers, 3 of them shared"));
  CHECK_FALSE(Says(*alone, "shared"));

  FillPattern(memory.span(), 1);
  const std::vector<std::byte> before(memory.span().begin(), memory.span().end());
  {
    const auto device = Opened(*one, {.path = file.path(), .max_io_bytes = kMiB});
    for (const size_t i : {0, 1, 2, 3}) REQUIRE(Write(*device, i * kMiB, part(i)).ok());
    CHECK(one->stats().fixed_buffer_ios == 4);
  }
  one.reset();  // the others keep theirs
  std::fill(memory.span().begin(), memory.span().end(), std::byte{0});
  {
    const auto device = Opened(*two, {.path = file.path(), .max_io_bytes = kMiB});
    for (const size_t i : {0, 1, 2, 3}) REQUIRE(Read(*device, i * kMiB, part(i)).ok());
    CHECK(two->stats().fixed_buffer_ios == 4);
    CHECK(two->stats().plain_buffer_ios == 0);
  }
  CHECK(std::equal(before.begin(), before.end(), memory.span().begin()));
}

TEST_CASE("what cannot be taken over a ring pins for itself, and says so") {
  struct Wrong final : SharedBuffers {
    absl::Status Pin(std::span<std::byte>) override { return absl::OkStatus(); }
    std::optional<Place> Find(std::span<const std::byte>) const override {
      return Place{.ring_fd = 0, .slot = 0};  // no ring
    }
  };
  AlignedBytes memory(kMiB);
  auto engine = MakeRing(std::make_shared<Wrong>());
  REQUIRE(engine->RegisterBuffer(memory.span()).ok());
  CHECK(engine->stats().shared_buffers == 0);
  CHECK(engine->stats().buffer_registration_failures == 0);
  CHECK(Says(*engine, "pinned once more"));
}

}  // namespace kvkeep
