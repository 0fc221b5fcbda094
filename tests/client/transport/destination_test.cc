#include "client/transport/destination.h"

#include <catch2/catch.hpp>

#include "client/transport/check_call.h"

namespace kvkeep::client {
namespace {

std::vector<std::byte> Numbers(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

// Fills it with all of `bytes`, `step` at a time.
void FillAll(Destination to, std::span<const std::byte> bytes, size_t step) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(step, bytes.size()));
    to.Fill(part, nullptr);
    bytes = bytes.subspan(part.size());
  }
}

}  // namespace

TEST_CASE("bytes fill a chunk's runs one after the other, whatever they come in") {
  const std::vector<std::byte> bytes = Numbers(100);
  for (size_t step = 1; step <= 100; ++step) {
    INFO("step " << step);
    std::vector<std::byte> memory(200, std::byte{0xee});
    // Runs of 7, none, skipped 13, 50 and 30 bytes; the last one lies behind a gap.
    const std::span<std::byte> all = memory;
    const std::vector<std::span<std::byte>> runs = {all.subspan(10, 7), all.subspan(0, 0),
                                                    std::span<std::byte>(
                                                        static_cast<std::byte*>(nullptr), 13),
                                                    all.subspan(20, 50), all.subspan(100, 30)};
    const Destination to{Destination::Runs(runs)};
    CHECK(to.bytes() == 100);
    FillAll(to, bytes, step);
    std::vector<std::byte> wanted(200, std::byte{0xee});
    std::copy_n(bytes.begin(), 7, wanted.begin() + 10);
    std::copy_n(bytes.begin() + 20, 50, wanted.begin() + 20);
    std::copy_n(bytes.begin() + 70, 30, wanted.begin() + 100);
    CHECK(memory == wanted);
  }
}

TEST_CASE("a call's destinations are one a chunk, or as many as it says, or asked for") {
  std::vector<std::byte> memory(100);
  const std::span<std::byte> all = memory;
  const std::vector<std::span<std::byte>> spans = {all.first(10), all.subspan(10, 20),
                                                   all.subspan(30, 40)};
  GetOptions options;
  options.destinations = spans;
  CHECK(CheckDestinations(options, 3).ok());
  CHECK(Destinations(options).Of(options, 1, 0).bytes() == 20);
  const std::vector<uint32_t> counts = {2, 0, 1};
  options.destination_runs = counts;
  CHECK(CheckDestinations(options, 3).ok());
  CHECK(Destinations(options).Of(options, 0, 0).bytes() == 30);
  CHECK(Destinations(options).Of(options, 1, 0).bytes() == 0);
  CHECK(Destinations(options).Of(options, 2, 0).bytes() == 40);
  CHECK(absl::IsInvalidArgument(CheckDestinations(options, 2)));
  const std::vector<uint32_t> wrong = {2, 0, 2};
  options.destination_runs = wrong;
  CHECK(absl::IsInvalidArgument(CheckDestinations(options, 3)));
  options.destination_runs = {};
  CHECK(absl::IsInvalidArgument(CheckDestinations(options, 2)));
  options.allocate = [&](size_t chunk, uint64_t bytes) { return all.subspan(chunk, bytes); };
  CHECK(CheckDestinations(options, 7).ok());
  CHECK(Destinations(options).Of(options, 5, 6).bytes() == 6);
}

}  // namespace kvkeep::client
