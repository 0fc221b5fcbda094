// The live map: which blocks of a device begin an image that its index names. It lies beside the
// index, not in it: when RocksDB is lost, the map still says which images on the device are wanted.
// Without it a rebuilt index would bring back deleted, cleared or evicted chunks, since their
// images stay where they are until their blocks are used again.
//
// A file of 4 KiB pages, 32 KiB for each GiB of data:
//      0    8  XXH3-64 of {device UUID (16), number of the page (8), bits (4088)}
//      8 4088  a bit for each block, lowest bit first; page p begins at block p * 32704
// A page of zeros says that nothing begins there. So does a damaged one, to everybody but fsck: an
// image without evidence is not wanted.
//
// Written through the page cache: it survives a killed daemon, and power loss as of the last Sync.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/block_set.h"
#include "tiers/base/key.h"
#include "tiers/nvme/posix_file.h"
#include "tiers/nvme/superblock.h"

namespace kvkeep {

inline constexpr uint64_t kLiveBlocksPerPage = (kBlockBytes - sizeof(uint64_t)) * 8;
constexpr uint64_t LiveMapBytes(BlockCount blocks) {
  return DivideRoundUp(blocks.value(), kLiveBlocksPerPage) * kBlockBytes;
}

// Sets a page's checksum; and checks that a page is right (or all zeros).
void SealLivePage(const Uuid& device, uint64_t number, Block& page);
bool LivePageIsGood(const Uuid& device, uint64_t number, std::span<const std::byte> page);

struct LiveMapContents {
  BlockSet images;
  std::vector<uint64_t> damaged_pages;  // by number; what they cover is not in `images`
};
// A file that is too short has damaged pages at its end.
absl::StatusOr<LiveMapContents> ReadLiveMap(int fd, const std::string& path, const Uuid& device,
                                            BlockCount blocks);
// Writes the whole map as one new file `path`, on stable storage.
absl::Status WriteLiveMap(const std::string& path, const Uuid& device, const BlockSet& images);

// The map of a device in use. One thread at a time; Sync on any.
class LiveMap {
 public:
  // Makes the file, and makes it as long as it should be.
  static absl::StatusOr<LiveMap> Open(const std::string& path, const Uuid& device,
                                      BlockCount blocks);

  absl::Status Set(std::span<const BlockNumber> images) { return Change(images, true); }
  absl::Status Clear(std::span<const BlockNumber> images) { return Change(images, false); }
  // Makes the map say exactly `images`. Writes only pages that change.
  absl::Status Replace(const BlockSet& images);
  absl::Status Sync() const { return FlushFile(fd_.get(), path_); }

 private:
  LiveMap(std::string path, const Uuid& device, BlockCount blocks, UniqueFd fd)
      : path_(std::move(path)), device_(device), blocks_(blocks), fd_(std::move(fd)) {}

  absl::Status Change(std::span<const BlockNumber> images, bool live);
  // A damaged page is read as one of zeros.
  absl::StatusOr<Block> ReadPage(uint64_t number) const;
  absl::Status WritePage(uint64_t number, Block& page) const;

  std::string path_;
  Uuid device_;
  BlockCount blocks_;
  UniqueFd fd_;
};

}  // namespace kvkeep
