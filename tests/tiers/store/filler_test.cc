// Filler by itself: images read into G2 and verified there, without devices or other copies.
#include "tiers/store/filler.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "tests/tiers/store/chunks_world.h"
#include "tiers/base/checksum.h"

namespace kvkeep::store_internal {
namespace {

constexpr ImageShape kFilledShape{.payload_bytes = kBlockBytes};

// A tier with one image, whose reads end on request.
class OneImageTier final : public LowerTier {
 public:
  OneImageTier() : LowerTier(0, MacKey{}, 64 * kMiB) { payload.assign(kBlockBytes, std::byte{7}); }

  void Read(ImageRead read) override { reads_begun.push_back(std::move(read)); }
  void EndRead(const absl::Status& header, const absl::Status& piece) {
    ImageRead read = std::move(reads_begun.front());
    reads_begun.erase(reads_begun.begin());
    EncodeSharedHeader(read.id, read.shape, Xxh3(payload), mac_key, read.header);
    const auto to = read.to.Run(kHeaderBytes, kBlockBytes);
    std::memcpy(to.data(), arrives.empty() ? payload.data() : arrives.data(), kBlockBytes);
    read.sink->OnHeaderRead(*read.promotion, read.header, header);
    read.sink->OnPieceRead(*read.promotion, 0, kBlockBytes, piece);
  }
  void Write(ImageWrite) override {}
  absl::Status CheckHeader(const ImageHeader&, const ExpectedHeader&) const override {
    return absl::OkStatus();
  }
  void NoteBad(const ChunkId&, const ImageHeader*) override { ++bad; }
  bool has_records() const override { return false; }
  ImagePlacement PlacementOf(const Chunk&) const override { return {}; }
  bool readable() const override { return true; }
  bool writable() const override { return true; }
  void NoteHeard() override {}
  void NoteIo(bool, const absl::Status&, MonotonicTime) override {}
  uint32_t NoteRuns(const Chunk&) override { return 1; }

  std::vector<std::byte> payload;
  std::vector<std::byte> arrives;  // instead of it, if not empty
  std::vector<ImageRead> reads_begun;
  int bad = 0;
};

class FillerWorld final : private Filler::Host {
 public:
  FillerWorld() {
    tier.pump.SetWork([] {});
  }
  // A chunk that is being read into G2, without waiters.
  ChunkSlot StartRead(uint64_t name) {
    Section section(&w.chunks);
    auto extents = w.chunks.Allocate(section, kOnlyTenant, kImageBlocks, kNoSlot);
    const ChunkSlot slot = w.chunks.Create(ChunksWorld::IdOf(name), kFilledShape);
    {
      Change chunk(&w.chunks, slot);
      chunk->g2 = *std::move(extents);
      w.chunks.SetG2State(*chunk, G2State::kReading);
      w.chunks.InsertIntoPolicy(slot, kNoSlot);
    }
    filler.Start(tier, {kOnlyTenant, {}}, slot, MonotonicTime::max());
    return slot;
  }
  void Pin(ChunkSlot slot) {
    Section section(&w.chunks);
    w.chunks.Pin(slot);
    reader = filler.Share(slot);
  }
  void Unpin(ChunkSlot slot) {
    Section section(&w.chunks);
    w.chunks.Unpin(slot);
  }
  std::string StateOf(ChunkSlot slot) {
    Section section(&w.chunks);
    const Chunk& chunk = w.chunks.table.at(slot);
    if (!chunk.live) return "gone";
    return chunk.g2_state == G2State::kResident  ? "resident"
           : chunk.g2_state == G2State::kReading ? "reading"
           : chunk.failed()                      ? "failed"
                                                 : "other";
  }
  ExtentList ExtentsOf(ChunkSlot slot) {
    Section section(&w.chunks);
    return w.chunks.table.at(slot).g2.list();
  }
  // Appends reports to the reader that pinned last.
  void Await() {
    filler.WhenReady(*reader, 0, 1, [this](const absl::Status& status) {
      told.push_back(status.ok() ? "ready" : std::string(absl::StatusCodeToString(status.code())));
    });
  }

  ChunksWorld w;
  OneImageTier tier;
  ImageVerifier verifier{&w.arena, nullptr, nullptr};
  Filler filler{&w.chunks, &verifier, w.deps, this};
  std::shared_ptr<Promotion> reader;
  std::vector<std::string> told, host_told;

 private:
  void OnReadEnded(ChunkSlot, LowerTier&, std::optional<std::chrono::seconds>) override {
    host_told.push_back("read ended");
  }
  void OnRead(Chunk&, LowerTier&) override { host_told.push_back("read"); }
  void OnFilled(ChunkSlot, LowerTier* from) override {
    host_told.push_back(from == nullptr ? "verified whole" : "filled");
  }
  bool IsReadAgain(const Chunk&) override { return false; }
  void OnSpoilt(ChunkSlot slot, bool keeps_record) override STORE_LOCKED {
    host_told.push_back(keeps_record ? "spoilt, a copy stays" : "spoilt");
    w.chunks.Detach(slot);
  }
  void OnVerified(ChunkSlot) override { host_told.push_back("verified"); }
  void NoteIo(LowerTier&, bool, const absl::Status& status) override {
    host_told.push_back(status.ok() ? "io" : "failed io");
  }
};

using Heard = std::vector<std::string>;

}  // namespace

TEST_CASE("readers of a chunk share one read, and are told once its bytes are checked") {
  FillerWorld f;
  const ChunkSlot slot = f.StartRead(1);
  f.Pin(slot);
  f.Await();
  f.Await();
  REQUIRE(f.tier.reads_begun.size() == 1);
  f.tier.EndRead(absl::OkStatus(), absl::OkStatus());
  CHECK(f.told.empty());  // its bytes are not checked yet
  CHECK(f.StateOf(slot) == "reading");
  f.w.executor.RunAll();
  CHECK(f.told == Heard{"ready", "ready"});
  CHECK(f.StateOf(slot) == "resident");
  CHECK(f.host_told == Heard{"io", "read ended", "read", "filled"});
  f.Await();
  CHECK(f.told.size() == 3);  // at once
  const std::vector<uint64_t> checksums{Xxh3(f.tier.payload)};
  CHECK(f.filler.Identity(f.reader.get(), f.ExtentsOf(slot))->piece_checksums == checksums);
  CHECK(f.filler.Identity(nullptr, f.ExtentsOf(slot))->piece_checksums == checksums);
  f.Unpin(slot);
}

TEST_CASE("bytes that do not match their checksum reach nobody, and spoil the copy") {
  FillerWorld f;
  f.tier.arrives.assign(kBlockBytes, std::byte{8});
  const ChunkSlot slot = f.StartRead(1);
  f.Pin(slot);
  f.Await();
  f.tier.EndRead(absl::OkStatus(), absl::OkStatus());
  f.w.executor.RunAll();
  CHECK(f.told == Heard{"DATA_LOSS"});
  CHECK(f.tier.bad == 1);
  CHECK(f.host_told == Heard{"read ended", "spoilt"});
  CHECK(f.StateOf(slot) == "failed");  // its reader keeps the space
  f.Await();
  CHECK(f.told == Heard{"DATA_LOSS", "DATA_LOSS"});
  CHECK(!f.filler.Identity(f.reader.get(), f.ExtentsOf(slot)).has_value());
  f.Unpin(slot);
  CHECK(f.StateOf(slot) == "gone");
}

TEST_CASE("a tier that is away costs a chunk nobody reads its space alone") {
  FillerWorld f;
  const ChunkSlot slot = f.StartRead(1);
  f.tier.EndRead(absl::UnavailableError("away"), absl::UnavailableError("away"));
  CHECK(f.StateOf(slot) == "gone");
  CHECK(f.tier.bad == 0);
  CHECK(f.host_told == Heard{"failed io", "read ended"});
}

TEST_CASE("what an earlier process left is verified in place before it is served") {
  FillerWorld f;
  const bool whole = GENERATE(true, false);
  CAPTURE(whole);
  // As a process leaves it: an image with its header.
  const ChunkSlot slot = f.StartRead(1);
  f.tier.EndRead(absl::OkStatus(), absl::OkStatus());
  f.w.executor.RunAll();
  f.host_told.clear();
  {
    Section section(&f.w.chunks);
    Change chunk(&f.w.chunks, slot);
    f.w.chunks.SetG2State(*chunk, G2State::kAbsent);
    f.w.chunks.SetG2State(*chunk, G2State::kUnverified);
  }
  if (!whole) {
    Section section(&f.w.chunks);
    f.w.chunks.ImageMemory(f.w.chunks.table.at(slot).g2.list(), kHeaderBytes, 1)[0] = std::byte{9};
  }
  {
    Section section(&f.w.chunks);
    f.filler.Verify(slot);
  }
  f.w.executor.RunAll();
  CHECK(f.host_told == (whole ? Heard{"verified whole", "verified"} : Heard{"spoilt", "verified"}));
  CHECK(f.StateOf(slot) == (whole ? "resident" : "gone"));
}

TEST_CASE("what the store reads for itself stays in the background until somebody wants it") {
  ManualExecutor background;
  FillerWorld f;
  f.w.deps.background_executor = &background;
  f.StartRead(1);
  f.tier.EndRead(absl::OkStatus(), absl::OkStatus());
  CHECK(background.size() == 1);
  CHECK(f.w.executor.size() == 0);
  const ChunkSlot wanted = f.StartRead(2);
  {
    Section section(&f.w.chunks);
    f.filler.Hurry(wanted);
  }
  f.tier.EndRead(absl::OkStatus(), absl::OkStatus());
  CHECK(background.size() == 1);
  CHECK(f.w.executor.size() == 1);
  background.RunAll();
  f.w.executor.RunAll();
  CHECK(f.StateOf(wanted) == "resident");
}

}  // namespace kvkeep::store_internal
