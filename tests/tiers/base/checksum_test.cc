#include "tiers/base/checksum.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {

TEST_CASE("PayloadCopier copies exactly and checksums each piece, however the payload is cut") {
  SeededRandom random(1);
  const size_t bytes = GENERATE(1u, 4096u, (1u << 20) - 1, 1u << 20, (3u << 20) + 17);
  const auto append = GENERATE(&PayloadCopier::Append, &PayloadCopier::AppendShared);
  std::vector<std::byte> source(bytes);
  random.Fill(source);
  std::vector<uint64_t> expected;
  for (size_t piece = 0; piece < PieceCount(bytes); ++piece) {
    expected.push_back(Xxh3({source.data() + piece * kPieceBytes, PieceSize(bytes, piece)}));
  }

  std::vector<std::byte> destination(bytes);
  PayloadCopier copier;
  size_t done = 0;
  while (done < bytes) {
    const size_t run = std::min<size_t>(bytes - done, random.Between(1, 2 << 20));
    (copier.*append)(destination.data() + done, {source.data() + done, run});
    done += run;
  }
  CHECK(copier.bytes() == bytes);
  CHECK(copier.Finish() == expected);
  CHECK(destination == source);
}

#ifndef __SANITIZE_THREAD__  // such memory is another process's
TEST_CASE("of memory that others write what is checksummed is what is stored") {
  std::vector<std::byte> source(kPieceBytes), destination(kPieceBytes);
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> written = 0;
  std::thread writer([&] {
    for (uint64_t turn = 0; !stop; ++turn) {
      for (size_t at = turn % 64; at < source.size(); at += 64) {
        std::atomic_ref(source[at]).store(std::byte(turn), std::memory_order_relaxed);
      }
      ++written;
    }
  });
  int wrong = 0;
  for (int i = 0; i < 300 || written < 10; ++i) {
    PayloadCopier copier;
    copier.AppendShared(destination.data(), source);
    wrong += copier.Finish().front() != Xxh3(destination);
  }
  stop = true;
  writer.join();
  CHECK(wrong == 0);
}
#endif

TEST_CASE("Xxh3Stream gives the checksum of the whole, however it comes in") {
  SeededRandom random(2);
  std::vector<std::byte> bytes(3'000'000);
  random.Fill(bytes);
  Xxh3Stream stream;
  CHECK(stream.Digest() == Xxh3({}));
  for (size_t done = 0; done < bytes.size();) {
    const size_t run = std::min<size_t>(bytes.size() - done, random.Between(0, 400'000));
    stream.Append({bytes.data() + done, run});
    done += run;
  }
  CHECK(stream.Digest() == Xxh3(bytes));
}

TEST_CASE("checksums are the published XXH3 values, so that other programs can check them") {
  CHECK(Xxh3({}) == 0x2d06800538d394c2);  // XXH3_64bits of no bytes, seed 0, from the specification
}

}  // namespace kvkeep
