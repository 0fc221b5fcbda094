#include "tiers/index/table_file.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "tiers/base/bytes.h"
#include "tiers/base/checksum.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

// The footer of format 5, at the end of a file: kind of checksum u8, handles of metaindex and
// index (two varints each), padding, version u32, magic u64. A block: data, compression u8,
// checksum u32.
constexpr uint64_t kFooterBytes = 53, kMagicBytes = 8, kVersionBytes = 4, kTrailerBytes = 5;
constexpr uint64_t kMagic = 0x88e241b785f4cff7;
constexpr uint32_t kFormatVersion = 5;
constexpr uint8_t kChecksumXxh3 = 4, kNotCompressed = 0;
constexpr uint64_t kMaxBlockBytes = 16 * kMiB;
constexpr char kPropertiesKey[] = "rocksdb.properties";

struct Handle {
  uint64_t offset = 0, bytes = 0;
};

std::optional<uint64_t> TakeVarint(absl::string_view* from) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !from->empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(from->front());
    from->remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<Handle> TakeHandle(absl::string_view* from) {
  const auto offset = TakeVarint(from), bytes = TakeVarint(from);
  if (!offset.has_value() || !bytes.has_value()) return std::nullopt;
  return Handle{*offset, *bytes};
}

std::optional<std::string> ReadAt(std::ifstream& file, const Handle& at) {
  if (at.bytes > kMaxBlockBytes) return std::nullopt;
  std::string bytes(at.bytes, '\0');
  file.seekg(static_cast<std::streamoff>(at.offset));
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.good()) return std::nullopt;
  return bytes;
}

// A block's data; none when it is not what was written.
std::optional<std::string> ReadBlock(std::ifstream& file, const Handle& at) {
  std::optional<std::string> block = ReadAt(file, {at.offset, at.bytes + kTrailerBytes});
  if (!block.has_value()) return std::nullopt;
  const std::byte* const trailer = AsBytes(*block).data() + at.bytes;
  if (LoadAt<uint8_t>(trailer) != kNotCompressed) return std::nullopt;
  const auto said = LoadAt<uint32_t>(trailer + 1);
  block->resize(at.bytes);
  if (static_cast<uint32_t>(Xxh3(AsBytes(*block))) != said) return std::nullopt;
  return block;
}

// Entries of a metaindex, whose keys share nothing with each other: 0, length of key, length of
// value (varints), key, value.
std::optional<Handle> FindProperties(absl::string_view metaindex) {
  while (!metaindex.empty()) {
    const auto shared = TakeVarint(&metaindex), key = TakeVarint(&metaindex);
    const auto value = TakeVarint(&metaindex);
    if (shared != 0u || !key.has_value() || !value.has_value()) return std::nullopt;
    if (*key > metaindex.size() || *value > metaindex.size() - *key) return std::nullopt;
    absl::string_view handle = metaindex.substr(*key, *value);
    if (metaindex.substr(0, *key) == kPropertiesKey) return TakeHandle(&handle);
    metaindex.remove_prefix(*key + *value);
  }
  return std::nullopt;
}

// Also true when nothing can be said: RocksDB finds the damage of footers and metaindexes.
bool PropertiesAreRight(const std::filesystem::path& path) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error || size < kFooterBytes) return true;
  std::ifstream file(path, std::ios::binary);
  const auto footer = ReadAt(file, {size - kFooterBytes, kFooterBytes});
  if (!footer.has_value()) return true;
  const std::byte* const magic = AsBytes(*footer).data() + kFooterBytes - kMagicBytes;
  const bool known = LoadAt<uint64_t>(magic) == kMagic &&
                     LoadAt<uint32_t>(magic - kVersionBytes) == kFormatVersion &&
                     static_cast<uint8_t>(footer->front()) == kChecksumXxh3;
  absl::string_view handles = absl::string_view(*footer).substr(1);
  const std::optional<Handle> at = TakeHandle(&handles);
  if (!known || !at.has_value()) return true;
  const std::optional<std::string> metaindex = ReadBlock(file, *at);
  if (!metaindex.has_value()) return true;
  const std::optional<Handle> properties = FindProperties(*metaindex);
  return !properties.has_value() || ReadBlock(file, *properties).has_value();
}

}  // namespace

absl::Status CheckTableFiles(const std::string& dir) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() != ".sst" || PropertiesAreRight(it->path())) continue;
    return absl::DataLossError(absl::StrCat("index ", dir, ": ", it->path().filename().string(),
                                            ": the properties do not match their checksum"));
  }
  return absl::OkStatus();
}

}  // namespace kvkeep
