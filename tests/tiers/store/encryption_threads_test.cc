// Encryption with real threads: units of one image, and images, at the same time.
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/fakes/threaded_store.h"
#include "tests/sim/payload.h"

namespace kvkeep {

TEST_CASE("images that threads encrypt and decrypt at the same time come back whole") {
  constexpr size_t kChunks = 6;
  const auto payload = [](uint64_t name) { return MakePayload(name, 1, 5 * kMiB + 77 * name); };
  const std::shared_ptr<KeyRing> keys = KeyRing::InMemory({""}, RealRandom());
  ThreadedStore threaded(
      {.g2_blocks = 10'240, .device_blocks = 20'480, .threads = 4, .keys = keys});
  for (uint64_t name = 1; name <= kChunks; ++name) threaded.Put(MakeKey(name), payload(name));
  threaded.Restart();
  std::vector<ChunkReader> readers;
  for (uint64_t name = 1; name <= kChunks; ++name) readers.push_back(threaded.Read(MakeKey(name)));
  for (uint64_t name = 1; name <= kChunks; ++name) {
    ChunkReader& reader = readers[name - 1];
    REQUIRE(reader);
    REQUIRE(ThreadedStore::AwaitReady(reader).ok());
    const std::vector<std::byte> wanted = payload(name);
    const auto got = reader.Payload(0, wanted.size());
    REQUIRE(got.size() == wanted.size());
    CHECK(std::memcmp(got.data(), wanted.data(), wanted.size()) == 0);
  }
  const StoreSnapshot snapshot = threaded.store().snapshot();
  CHECK(snapshot.counters.promotions_failed == 0);
  CHECK(snapshot.cipher_buffer_bytes == 0);
  readers.clear();
}

}  // namespace kvkeep
