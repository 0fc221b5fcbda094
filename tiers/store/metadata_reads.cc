#include "tiers/store/metadata_reads.h"

#include <atomic>
#include <deque>

#include "tiers/base/check.h"
#include "tiers/base/checksum.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {
namespace {

absl::Status Gone() { return absl::NotFoundError("there is no such chunk any more"); }

// The reads of one tail: of the header page, and of the tail's pages.
struct TailRead {
  ChunkId id;
  ImageShape shape;
  MacKey mac_key{};
  MetadataReads::Callback done;
  std::deque<AlignedPage> pages;
  std::atomic<size_t> left{0};
  std::atomic<bool> failed{false};
  std::shared_ptr<char> counted;  // DeviceTier::tail_reads

  uint64_t first_block() const { return shape.tail_offset() / kBlockBytes; }

  void OnRead(const absl::Status& status) {
    if (!status.ok()) failed = true;
    if (left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    if (failed) {
      std::move(done)(absl::UnavailableError("a device could not be read"));
    } else {
      std::move(done)(Tail());
    }
  }

  absl::StatusOr<std::string> Tail() {
    const absl::StatusOr<ImageHeader> header = DecodeHeader(pages[0].span(), mac_key);
    if (!header.ok() || header->identity.id != id || header->identity.shape != shape) return Gone();
    if (header->encryption.has_value()) {
      return absl::FailedPreconditionError("the chunk's metadata is encrypted in G3");
    }
    std::string blocks;
    for (size_t page = 1; page < pages.size(); ++page) {
      blocks.append(reinterpret_cast<const char*>(pages[page].bytes), kBlockBytes);
    }
    std::string tail =
        blocks.substr(shape.tail_offset() - first_block() * kBlockBytes, shape.tail_bytes);
    if (Xxh3(AsBytes(tail)) != header->identity.tail_checksum) return Gone();
    return tail;
  }
};

}  // namespace

MetadataReads::MetadataReads(const MacKey& mac_key, Chunks* chunks, DeviceTiers* tiers,
                             Reads* reads)
    : mac_key_(mac_key), chunks_(*chunks), tiers_(*tiers), reads_(*reads) {}

void MetadataReads::ReadMetadata(const ChunkId& id, Callback done) {
  Section section(&chunks_);
  chunks_.Count(work::kFind);
  const ChunkSlot slot = chunks_.table.Find(id);
  if (slot == kNoSlot) return chunks_.CallLater(std::move(done), Gone());
  const Chunk& chunk = chunks_.table.at(slot);
  if (chunk.shape.tail_bytes == 0) return chunks_.CallLater(std::move(done), std::string());
  // A chunk that a restart left in G2 would have to be verified as a whole before its tail may be
  // read. If G3 has it too, its tail is read there.
  const bool verified = chunk.g2_state != G2State::kUnverified;
  if (chunk.in_g2() && (verified || !tiers_.InG3(chunk))) {
    const auto reader = std::make_shared<ChunkReader>(reads_.Pin(slot, ReaderKind::kOwner));
    return chunks_.Later([reader, done = std::move(done)]() mutable {
      reader->WhenReady(reader->shape().pieces() - 1, 1,
                        [reader, done = std::move(done)](absl::Status status) mutable {
                          std::string metadata = status.ok() ? reader->Metadata() : "";
                          *reader = ChunkReader();
                          if (!status.ok()) return std::move(done)(status);
                          std::move(done)(std::move(metadata));
                        });
    });
  }
  if (!tiers_.InG3(chunk)) return chunks_.CallLater(std::move(done), Gone());
  ReadTail(chunk, std::move(done));
}

void MetadataReads::ReadTail(const Chunk& chunk, Callback done) {
  KVKEEP_CHECK(tiers_.InG3(chunk));
  auto tail = std::make_shared<TailRead>();
  tail->id = chunk.id;
  tail->shape = chunk.shape;
  tail->mac_key = mac_key_;
  tail->done = std::move(done);
  const DeviceTier& tier = tiers_.of(chunk);
  tail->counted = tier.tail_reads;
  std::vector<IoOperation> reads;
  const auto read = [&](uint64_t block) {
    AlignedPage& page = tail->pages.emplace_back();
    const ByteRun from = LocateInImage(chunk.g3, block * kBlockBytes, kBlockBytes);
    reads.push_back({.kind = IoOperation::Kind::kRead,
                     .offset = DeviceOffset(from.tier_offset),
                     .data = page.bytes,
                     .bytes = kBlockBytes,
                     .done = [tail](absl::Status status) { tail->OnRead(status); }});
  };
  read(0);
  for (uint64_t block = tail->first_block(); block < chunk.blocks(); ++block) read(block);
  for (const AlignedPage& page : tail->pages) {
    if (page.ok()) continue;
    ++chunks_.counters.allocation_failures;
    return chunks_.Later([tail] { std::move(tail->done)(AlignedPage::NoMemory()); });
  }
  tail->left = reads.size();
  chunks_.Count(static_cast<uint32_t>(work::kOperation * reads.size()));
  chunks_.Later([io = &tier.device->io(), reads = std::move(reads)]() mutable {
    for (IoOperation& one : reads) io->Submit(std::move(one));
  });
}

}  // namespace kvkeep::store_internal
