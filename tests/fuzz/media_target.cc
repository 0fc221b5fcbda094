// Data read back from media: bytes that a failing drive, another user or another version may have
// made. Each input is refused, or read as something valid that is written as it was read.
//
// The first byte chooses the kind. Its high bit makes checksums and the MAC right first, as a
// fuzzer would never guess them, and the code behind them is to be tried as well.
#include <cstring>

#include "server/storage/known_devices.h"
#include "tests/fakes/header_page.h"
#include "tests/fakes/seeded_random.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"
#include "tests/tiers/index/records.h"
#include "tiers/base/bytes.h"
#include "tiers/base/image.h"
#include "tiers/host/arena_files.h"
#include "tiers/index/record.h"
#include "tiers/nvme/geometry.h"
#include "tiers/nvme/superblock.h"

namespace kvkeep {
namespace {

enum class Kind : uint8_t {
  kImageHeader,
  kRecord,
  kSuperblock,
  kLabel,
  kStableMark,
  kArenaId,
  kKnownDevices,
};
constexpr uint8_t kKinds = 7;
constexpr uint8_t kMakeRight = 0x80;
constexpr size_t kRecordKeyBytes = 52;
constexpr size_t kBlockChecksumAt = 4088;  // of superblock and label (superblock.h)

constexpr MacKey kKey{std::byte{7}};

// Returns the input at a block's length, with zeros behind its end.
Block TakeBlock(InputReader& input) {
  Block block{};
  const auto bytes = input.Take(block.size());
  if (!bytes.empty()) std::memcpy(block.data(), bytes.data(), bytes.size());
  return block;
}

// Checks that all of an image lies somewhere, once.
void CheckPlaced(const ImageShape& shape, const ExtentList& extents) {
  KVKEEP_CHECK(ValidateShape(shape).ok());
  uint64_t found = 0;
  for (const Extent& extent : extents) {
    KVKEEP_CHECK(extent.end() > extent.first.value());
    KVKEEP_CHECK(extent.count.value() <= shape.blocks().value() - found);
    found += extent.count.value();
  }
  KVKEEP_CHECK(found == shape.blocks().value());
  LocateInImage(extents, shape.used_bytes() - 1, 1);
}

void CheckImageHeader(Block page, bool make_right) {
  if (make_right) MakeHeaderRight(page, kKey);
  const absl::StatusOr<ImageClaim> claim = DecodeClaim(page);  // a start believes it for a while
  if (claim.ok()) CheckPlaced(claim->shape, claim->placement.extents);
  const absl::StatusOr<ImageHeader> header = DecodeHeader(page, kKey);
  if (!header.ok()) return;
  const ImageShape& shape = header->identity.shape;
  KVKEEP_CHECK(claim.ok() && claim->id == header->identity.id && claim->shape == shape);
  KVKEEP_CHECK(claim->placement == header->placement);
  KVKEEP_CHECK(header->identity.piece_checksums.size() == shape.pieces());
  Block again;
  EncodeHeader(*header, kKey, again);
  const absl::StatusOr<ImageHeader> read = DecodeHeader(again, kKey);
  KVKEEP_CHECK(read.ok() && read->placement == header->placement);
  KVKEEP_CHECK(read->identity.id == header->identity.id && read->identity.shape == shape);
  KVKEEP_CHECK(read->identity.piece_checksums == header->identity.piece_checksums);
}

void CheckRecord(InputReader& input) {
  const std::string key = input.Text(kRecordKeyBytes), value = input.RestText();
  const absl::StatusOr<IndexRecord> record = DecodeRecord(key, value);
  if (!record.ok()) return;
  KVKEEP_CHECK(EncodeRecordKey(record->id) == key);
  KVKEEP_CHECK(EncodeRecordValue(*record) == value);
}

void CheckSuperblock(Block block, bool make_right) {
  if (make_right) {
    StoreAt<uint64_t>(block.data() + kBlockChecksumAt,
                      Xxh3(std::span(block).first(kBlockChecksumAt)));
  }
  const absl::StatusOr<Superblock> superblock = DecodeSuperblock(block);
  if (!superblock.ok()) return;
  const DeviceGeometry geometry = MakeGeometry(superblock->capacity_bytes, superblock->file_bytes);
  KVKEEP_CHECK(geometry.data_bytes() < superblock->capacity_bytes);
  const absl::StatusOr<Superblock> again = DecodeSuperblock(EncodeSuperblock(*superblock));
  KVKEEP_CHECK(again.ok() && *again == *superblock);
}

void CheckLabel(Block block, bool make_right) {
  if (make_right) {
    StoreAt<uint64_t>(block.data() + kBlockChecksumAt,
                      Xxh3(std::span(block).first(kBlockChecksumAt)));
  }
  const absl::StatusOr<DataFileLabel> label = DecodeLabel(block);
  if (!label.ok()) return;
  const absl::StatusOr<DataFileLabel> again = DecodeLabel(EncodeLabel(*label));
  KVKEEP_CHECK(again.ok() && *again == *label);
}

void RunMedia(std::span<const uint8_t> bytes) {
  InputReader input(bytes);
  const uint8_t first = input.U8();
  const bool make_right = (first & kMakeRight) != 0;
  switch (static_cast<Kind>((first & ~kMakeRight) % kKinds)) {
    case Kind::kImageHeader:
      return CheckImageHeader(TakeBlock(input), make_right);
    case Kind::kRecord:
      return CheckRecord(input);
    case Kind::kSuperblock:
      return CheckSuperblock(TakeBlock(input), make_right);
    case Kind::kLabel:
      return CheckLabel(TakeBlock(input), make_right);
    case Kind::kStableMark: {
      const std::string text = input.RestText();
      const absl::StatusOr<StableMark> mark = DecodeStableMark(text);
      KVKEEP_CHECK(!mark.ok() || EncodeStableMark(*mark) == text);
      return;
    }
    case Kind::kArenaId: {
      const std::optional<ArenaId> id = ArenaId::Parse(input.RestText());
      KVKEEP_CHECK(!id.has_value() || ArenaId::Parse(id->ToString()) == id);
      return;
    }
    case Kind::kKnownDevices: {
      const std::set<std::string> dirs = ParseKnownDevices(input.RestText());
      KVKEEP_CHECK(!dirs.contains("") && ParseKnownDevices(PrintKnownDevices(dirs)) == dirs);
      return;
    }
  }
}

FuzzInput Seed(Kind kind, bool make_right, std::span<const std::byte> bytes) {
  FuzzInput seed = {static_cast<uint8_t>(static_cast<uint8_t>(kind) | (make_right ? 0x80 : 0))};
  for (const std::byte byte : bytes) seed.push_back(static_cast<uint8_t>(byte));
  return seed;
}

Block HeaderOf(const IndexRecord& record, SeededRandom& random) {
  ImageHeader header;
  header.identity = {.id = record.id, .shape = record.shape};
  for (size_t i = 0; i < record.shape.pieces(); ++i) {
    header.identity.piece_checksums.push_back(random.NextU64());
  }
  header.placement = {.tier = Tier::kG3,
                      .incarnation = record.incarnation,
                      .generation = record.generation,
                      .extents = record.extents};
  Block page;
  EncodeHeader(header, kKey, page);
  return page;
}

std::vector<FuzzInput> MediaSeeds() {
  SeededRandom random(11);
  std::vector<FuzzInput> seeds;
  for (uint32_t n = 0; n < 4; ++n) {
    const IndexRecord record = n % 2 == 0 ? NumberedRecord(n) : RandomRecord(random);
    const Block page = HeaderOf(record, random);
    Block former = page;
    MakeFormer(former, kKey);
    for (const bool make_right : {false, true}) {
      seeds.push_back(Seed(Kind::kImageHeader, make_right, page));
      seeds.push_back(Seed(Kind::kImageHeader, make_right, former));
    }
    seeds.push_back(Seed(Kind::kRecord, false,
                         AsBytes(EncodeRecordKey(record.id) + EncodeRecordValue(record))));
  }
  const Superblock superblock{.store = random.Next<Uuid>(),
                              .device = random.Next<Uuid>(),
                              .capacity_bytes = 5 * kGiB,
                              .file_bytes = kGiB};
  const DataFileLabel label{.device = superblock.device, .number = 3};
  for (const bool make_right : {false, true}) {
    seeds.push_back(Seed(Kind::kSuperblock, make_right, EncodeSuperblock(superblock)));
    seeds.push_back(Seed(Kind::kLabel, make_right, EncodeLabel(label)));
  }
  const StableMark mark{.boot_id = random.Next<Uuid>(), .sequence = CommitSequence(7)};
  seeds.push_back(Seed(Kind::kStableMark, false, AsBytes(EncodeStableMark(mark))));
  const ArenaId id{.uuid = random.Next<Uuid>(),
                   .geometry = {.capacity_bytes = 5 * kGiB, .segment_bytes = kGiB},
                   .owners = 42};
  seeds.push_back(Seed(Kind::kArenaId, false, AsBytes(id.ToString())));
  seeds.push_back(Seed(Kind::kKnownDevices, false, AsBytes("/mnt/nvme0\n/mnt/nvme1\n")));
  return seeds;
}

}  // namespace

const FuzzTarget kMediaTarget{.name = "media", .run = RunMedia, .seeds = MediaSeeds};

}  // namespace kvkeep
