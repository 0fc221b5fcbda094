#include "tiers/nvme/live_map.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/checksum.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr size_t kBitsAt = sizeof(uint64_t);

uint64_t Checksum(const Uuid& device, uint64_t number, std::span<const std::byte> page) {
  Xxh3Stream stream;
  stream.Append(std::as_bytes(std::span(device.bytes)));
  stream.Append(std::as_bytes(std::span(&number, 1)));
  stream.Append(page.subspan(kBitsAt));
  return stream.Digest();
}

bool IsZero(std::span<const std::byte> page) {
  return std::all_of(page.begin(), page.end(), [](std::byte b) { return b == std::byte{0}; });
}

std::byte& ByteOf(Block& page, uint64_t bit) { return page[kBitsAt + bit / 8]; }
std::byte MaskOf(uint64_t bit) { return std::byte{1} << (bit % 8); }

// Returns the page with the bits of `images` for its blocks.
Block MakePage(const Uuid& device, uint64_t number, const BlockSet& images) {
  Block page{};
  const uint64_t first = number * kLiveBlocksPerPage, end = first + kLiveBlocksPerPage;
  bool any = false;
  for (auto at = images.Next(BlockNumber(first)); at.has_value() && at->value() < end;
       at = images.Next(BlockNumber(at->value() + 1))) {
    const uint64_t bit = at->value() - first;
    ByteOf(page, bit) |= MaskOf(bit);
    any = true;
  }
  if (any) SealLivePage(device, number, page);
  return page;
}

}  // namespace

void SealLivePage(const Uuid& device, uint64_t number, Block& page) {
  StoreAt<uint64_t>(page.data(), Checksum(device, number, page));
}

bool LivePageIsGood(const Uuid& device, uint64_t number, std::span<const std::byte> page) {
  if (page.size() != kBlockBytes) return false;
  return LoadAt<uint64_t>(page.data()) == Checksum(device, number, page) || IsZero(page);
}

absl::StatusOr<LiveMapContents> ReadLiveMap(int fd, const std::string& path, const Uuid& device,
                                            BlockCount blocks) {
  LiveMapContents contents{.images = BlockSet(blocks)};
  struct stat st;
  if (fstat(fd, &st) != 0) return ErrnoStatus(errno, path, "stat");
  const uint64_t pages = LiveMapBytes(blocks) / kBlockBytes;
  const uint64_t there = std::min<uint64_t>(pages, static_cast<uint64_t>(st.st_size) / kBlockBytes);
  for (uint64_t number = 0; number < pages; ++number) {
    Block page;
    if (number < there) KVKEEP_RETURN_IF_ERROR(ReadAt(fd, number * kBlockBytes, page, path));
    if (number >= there || !LivePageIsGood(device, number, page)) {
      contents.damaged_pages.push_back(number);
      continue;
    }
    const uint64_t first = number * kLiveBlocksPerPage;
    const uint64_t bits = std::min(kLiveBlocksPerPage, blocks.value() - first);
    for (uint64_t bit = 0; bit < bits; ++bit) {
      if ((ByteOf(page, bit) & MaskOf(bit)) != std::byte{0}) {
        contents.images.Insert(BlockNumber(first + bit));
      }
    }
  }
  return contents;
}

absl::Status WriteLiveMap(const std::string& path, const Uuid& device, const BlockSet& images) {
  KVKEEP_ASSIGN_OR_RETURN(const UniqueFd fd,
                          OpenAt(AT_FDCWD, path, O_RDWR | O_CREAT | O_TRUNC, 0600, path));
  const uint64_t bytes = LiveMapBytes(images.space());
  KVKEEP_RETURN_IF_ERROR(Preallocate(fd.get(), 0, bytes, path));
  for (uint64_t number = 0; number < bytes / kBlockBytes; ++number) {
    const Block page = MakePage(device, number, images);
    KVKEEP_RETURN_IF_ERROR(WriteAt(fd.get(), number * kBlockBytes, page, path));
  }
  return FlushFile(fd.get(), path);
}

absl::StatusOr<LiveMap> LiveMap::Open(const std::string& path, const Uuid& device,
                                      BlockCount blocks) {
  KVKEEP_ASSIGN_OR_RETURN(UniqueFd fd, OpenAt(AT_FDCWD, path, O_RDWR | O_CREAT, 0600, path));
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, path, "stat");
  if (!S_ISREG(st.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": not a regular file"));
  }
  KVKEEP_RETURN_IF_ERROR(
      Preallocate(fd.get(), static_cast<uint64_t>(st.st_size), LiveMapBytes(blocks), path));
  return LiveMap(path, device, blocks, std::move(fd));
}

absl::StatusOr<Block> LiveMap::ReadPage(uint64_t number) const {
  KVKEEP_CHECK(number < LiveMapBytes(blocks_) / kBlockBytes);
  Block page;
  KVKEEP_RETURN_IF_ERROR(ReadAt(fd_.get(), number * kBlockBytes, page, path_));
  return LivePageIsGood(device_, number, page) ? page : Block{};
}

absl::Status LiveMap::WritePage(uint64_t number, Block& page) const {
  SealLivePage(device_, number, page);
  return WriteAt(fd_.get(), number * kBlockBytes, page, path_);
}

absl::Status LiveMap::Change(std::span<const BlockNumber> images, bool live) {
  std::vector<BlockNumber> sorted(images.begin(), images.end());
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size();) {
    KVKEEP_CHECK(sorted.back().value() < blocks_.value());
    const uint64_t number = sorted[i].value() / kLiveBlocksPerPage;
    KVKEEP_ASSIGN_OR_RETURN(Block page, ReadPage(number));
    for (; i < sorted.size() && sorted[i].value() / kLiveBlocksPerPage == number; ++i) {
      const uint64_t bit = sorted[i].value() % kLiveBlocksPerPage;
      std::byte& byte = ByteOf(page, bit);
      byte = live ? byte | MaskOf(bit) : byte & ~MaskOf(bit);
    }
    KVKEEP_RETURN_IF_ERROR(WritePage(number, page));
  }
  return absl::OkStatus();
}

absl::Status LiveMap::Replace(const BlockSet& images) {
  KVKEEP_CHECK(images.space() == blocks_);
  for (uint64_t number = 0; number < LiveMapBytes(blocks_) / kBlockBytes; ++number) {
    const Block wanted = MakePage(device_, number, images);
    Block page;
    KVKEEP_RETURN_IF_ERROR(ReadAt(fd_.get(), number * kBlockBytes, page, path_));
    if (page == wanted) continue;
    KVKEEP_RETURN_IF_ERROR(WriteAt(fd_.get(), number * kBlockBytes, wanted, path_));
  }
  return absl::OkStatus();
}

}  // namespace kvkeep
