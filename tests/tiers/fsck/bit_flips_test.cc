// Random bits flip over a device's directory: data, headers, superblock, live map, table files,
// log, MANIFEST. fsck finds each flip, or it changes nothing that is read; and whatever the store
// still serves from that device has the right bytes.
//
// KVKEEP_BIT_FLIPS=N flips (default 50), KVKEEP_BIT_FLIPS_SEED=S. Prints its seed, and the results
// of the flips.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <iostream>

#include "tests/fakes/from_environment.h"
#include "tests/tiers/fsck/store_on_disk.h"
#include "tiers/nvme/device_names.h"

namespace kvkeep {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kChunks = 24;

// Chunks of all sizes, some of which were deleted; table files and a log.
void Fill(StoreOnDisk& disk, SeededRandom& random) {
  REQUIRE(disk.Start());
  for (uint64_t name = 1; name <= kChunks; ++name) {
    if (name == kChunks / 2) {
      disk.Stop();
      REQUIRE(disk.Start());
    }
    const uint64_t bytes = random.Chance(0.3) ? random.Between(1, 5000) : random.Between(1, kMiB);
    disk.Put(name, static_cast<uint32_t>(bytes), static_cast<uint32_t>(random.Below(3) * 1000));
    if (name % 5 == 0) disk.Delete(name - 2);
  }
  disk.Stop();
}

class Flipper {
 public:
  Flipper(StoreOnDisk& disk, SeededRandom& random)
      : disk_(disk), random_(random), records_(disk.Records()) {
    fs::copy(disk.File(kIndexName), kept_ / "index", fs::copy_options::recursive);
    for (const char* name : {kSuperblockName, kLiveMapName}) {
      fs::copy_file(disk.File(name), kept_ / name);
    }
    for (const auto& file : fs::directory_iterator(disk.File(kIndexName))) {
      const std::string name = absl::StrCat("index/", file.path().filename().string());
      if (fs::file_size(file) > 0) index_files_.push_back(name);
    }
  }

  void Flip() {
    ChoosePlace();
    const int bit = static_cast<int>(random_.Below(8));
    INFO(file_ << " byte " << byte_ << " bit " << bit);
    disk_.FlipBit(file_, byte_, bit);
    const absl::StatusOr<FsckReport> report = Fsck(disk_.fsck_options());
    INFO(report.status().ToString());
    REQUIRE(report.ok());
    INFO(Text(report->findings));
    const bool found = report->problems + report->notices > 0;
    ++(found ? found_ : unused_);
    CHECK((found || IsUnused()));
    CheckServed();
    if (absl::StartsWith(file_, "data.")) disk_.FlipBit(file_, byte_, bit);
    Restore();
  }

  std::string Told() const {
    return absl::StrCat(found_, " found, ", unused_, " in unused space, ", refused_starts_,
                        " starts without the device, ", hits_, " right hits, ", misses_,
                        " misses, ", wrong_, " wrong chunks");
  }

 private:
  void ChoosePlace() {
    const uint64_t kind = random_.Below(10);
    if (kind < 3) {  // anywhere in the index
      file_ = index_files_[random_.Below(index_files_.size())];
      byte_ = random_.Below(fs::file_size(disk_.File(file_)));
    } else if (kind == 3) {
      file_ = random_.Chance(0.5) ? kSuperblockName : kLiveMapName;
      byte_ = random_.Below(kBlockBytes);
    } else {  // an image's header, an image, or anywhere
      auto record = records_.begin();
      std::advance(record, static_cast<ptrdiff_t>(random_.Below(records_.size())));
      const uint64_t image = record->second.shape.blocks().value() * kBlockBytes;
      uint64_t at = random_.Below(32 * kMiB);
      if (kind < 9) at = random_.Below(kind < 6 ? kHeaderBytes : image);
      if (kind < 9) at = LocateInImage(record->second.extents, at, 1).tier_offset;
      file_ = DataFileName(at / disk_.options.file_bytes);
      byte_ = at % disk_.options.file_bytes;
    }
  }

  // Nothing reads that bit: the device's answers are the same as before.
  bool IsUnused() {
    if (!absl::StartsWith(file_, "data.")) {
      return absl::StartsWith(file_, "index/") && disk_.Records() == records_;
    }
    const uint64_t number = *absl::string_view(file_).rbegin() - '0';
    const uint64_t at = number * disk_.options.file_bytes + byte_;
    if (byte_ < kBlockBytes) return false;  // the label
    for (const auto& [id, record] : records_) {
      const ImageShape& shape = record.shape;
      const uint64_t payload_end = kHeaderBytes + uint64_t{shape.payload_bytes};
      for (uint64_t in = 0; in < shape.used_bytes();) {
        const ByteRun run = LocateInImage(record.extents, in, shape.used_bytes() - in);
        if (at >= run.tier_offset && at < run.tier_offset + run.bytes) {
          const uint64_t byte = in + at - run.tier_offset;
          const bool header_rest = byte >= 2784 && byte < kHeaderBytes;
          const bool gap = byte >= payload_end && byte < shape.tail_offset();
          return header_rest || gap;
        }
        in += run.bytes;
      }
    }
    return true;
  }

  void CheckServed() {
    if (!disk_.Start()) {
      // A broken device degrades the daemon; a misconfigured one, or a store that fails, stops it.
      INFO(disk_.error.ToString());
      CHECK_FALSE(disk_.device_opened);
      CHECK(absl::IsDataLoss(disk_.error));
      ++refused_starts_;
      return;
    }
    for (uint64_t name = 1; name <= kChunks; ++name) {
      const std::string got = disk_.Get(name);
      INFO("chunk " << name);
      CHECK((got == "hit" || got == "miss"));
      ++(got == "hit" ? hits_ : got == "miss" ? misses_ : wrong_);
    }
    disk_.Stop();
  }

  // Restores the files that the store wrote at its start; it wrote no data.
  void Restore() {
    fs::remove_all(disk_.File(kIndexName));
    fs::copy(kept_ / "index", disk_.File(kIndexName), fs::copy_options::recursive);
    for (const char* name : {kSuperblockName, kLiveMapName}) {
      fs::copy_file(kept_ / name, disk_.File(name), fs::copy_options::overwrite_existing);
    }
  }

  StoreOnDisk& disk_;
  SeededRandom& random_;
  const std::map<ChunkId, IndexRecord> records_;
  ScratchDir kept_;
  std::vector<std::string> index_files_;
  std::string file_;
  uint64_t byte_ = 0;
  uint64_t found_ = 0, unused_ = 0, refused_starts_ = 0, hits_ = 0, misses_ = 0, wrong_ = 0;
};

}  // namespace

TEST_CASE("a flipped bit is found or unused, and never a wrong byte is served") {
  const uint64_t flips = FromEnvironment("KVKEEP_BIT_FLIPS", 50);
  const uint64_t seed = FromEnvironment("KVKEEP_BIT_FLIPS_SEED", 1);
  INFO("KVKEEP_BIT_FLIPS_SEED=" << seed);
  SeededRandom random(seed);
  StoreOnDisk disk;
  Fill(disk, random);
  REQUIRE(disk.Check().clean());
  Flipper flipper(disk, random);
  for (uint64_t i = 0; i < flips; ++i) {
    INFO("flip " << i);
    flipper.Flip();
  }
  CHECK(disk.Check().clean());  // all of them were repaired
  std::cout << "bit flips: seed " << seed << ", " << flips << " flips: " << flipper.Told() << "\n";
}

}  // namespace kvkeep
