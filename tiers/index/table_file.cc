#include "tiers/index/table_file.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tiers/base/bytes.h"
#include "tiers/base/checksum.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

namespace fs = std::filesystem;

// The footer of format 5, at the end of a file: kind of checksum u8, handles of metaindex and
// index (two varints each), padding, version u32, magic u64. A block: data, compression u8,
// checksum u32.
constexpr uint64_t kFooterBytes = 53, kMagicBytes = 8, kVersionBytes = 4, kTrailerBytes = 5;
constexpr uint64_t kMagic = 0x88e241b785f4cff7;
constexpr uint32_t kFormatVersion = 5;
constexpr uint8_t kChecksumXxh3 = 4, kNotCompressed = 0;
constexpr uint64_t kMaxBlockBytes = 16 * kMiB;
constexpr char kPropertiesKey[] = "rocksdb.properties";
constexpr char kTable[] = ".sst", kAside[] = ".damaged";

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

bool LiesWithin(const Handle& block, uint64_t file_bytes) {
  return block.offset <= file_bytes && block.bytes <= file_bytes - block.offset;
}

std::optional<std::string> ReadAt(std::ifstream& file, const Handle& at) {
  std::string bytes(at.bytes, '\0');
  file.seekg(static_cast<std::streamoff>(at.offset));
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.good()) return std::nullopt;
  return bytes;
}

// Returns a block's data, or nullopt if it is not what was written.
std::optional<std::string> ReadBlock(std::ifstream& file, const Handle& at) {
  if (at.bytes > kMaxBlockBytes) return std::nullopt;
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

fs::path AsideOf(const fs::path& table) { return fs::path(table) += kAside; }
fs::path OriginalOf(fs::path aside) { return aside.replace_extension(); }

// Best effort: if the file stays away, RocksDB says that it is missing. If RocksDB has made another
// file of that name, that one is the index's.
void PutBack(const fs::path& table) {
  std::error_code ignored;
  if (fs::exists(table, ignored)) {
    fs::remove(AsideOf(table), ignored);
  } else {
    fs::rename(AsideOf(table), table, ignored);
  }
}

std::vector<fs::path> FilesNamed(const std::string& dir, absl::string_view extension) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension().native() == extension) files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Also returns true in case of doubt: RocksDB finds other damage of footers and metaindexes.
bool IsSafeToOpen(const fs::path& path) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error || size < kFooterBytes) return true;
  std::ifstream file(path, std::ios::binary);
  const auto footer = ReadAt(file, {size - kFooterBytes, kFooterBytes});
  if (!footer.has_value()) return true;
  const std::byte* const magic = AsBytes(*footer).data() + kFooterBytes - kMagicBytes;
  const bool known = LoadAt<uint64_t>(magic) == kMagic &&
                     LoadAt<uint32_t>(magic - kVersionBytes) == kFormatVersion &&
                     static_cast<uint8_t>(footer->front()) == kChecksumXxh3;
  absl::string_view handles = absl::string_view(*footer).substr(1);
  const auto at = TakeHandle(&handles), index = TakeHandle(&handles);
  if (!known || !at.has_value() || !index.has_value()) return true;
  if (!LiesWithin(*at, size) || !LiesWithin(*index, size)) return false;
  const std::optional<std::string> metaindex = ReadBlock(file, *at);
  if (!metaindex.has_value()) return true;
  const std::optional<Handle> properties = FindProperties(*metaindex);
  return !properties.has_value() || ReadBlock(file, *properties).has_value();
}

std::vector<fs::path> FindDamaged(const std::string& dir) {
  std::vector<fs::path> tables = FilesNamed(dir, kTable);
  std::erase_if(tables, IsSafeToOpen);
  return tables;
}

absl::Status DamageOf(const std::string& dir, const fs::path& table) {
  return absl::DataLossError(absl::StrCat("index ", dir, ": ", table.filename().string(),
                                          ": footer or properties are damaged"));
}

}  // namespace

absl::Status CheckTableFiles(const std::string& dir) {
  const std::vector<fs::path> damaged = FindDamaged(dir);
  return damaged.empty() ? absl::OkStatus() : DamageOf(dir, damaged.front());
}

DamagedTables::DamagedTables(std::string dir) {
  // Puts back files that a process had moved aside before it died.
  for (const fs::path& aside : FilesNamed(dir, kAside)) PutBack(OriginalOf(aside));
  for (fs::path& table : FindDamaged(dir)) {
    if (status_.ok()) status_ = DamageOf(dir, table);
    std::error_code error;
    fs::rename(table, AsideOf(table), error);
    all_aside_ &= !error;
    if (!error) aside_.push_back(std::move(table));
  }
}

DamagedTables::~DamagedTables() {
  for (const fs::path& table : aside_) PutBack(table);
}

void DamagedTables::Remove() {
  std::error_code ignored;  // it is in nobody's way; the next start looks at it again
  for (const fs::path& table : aside_) fs::remove(AsideOf(table), ignored);
  aside_.clear();
}

}  // namespace kvkeep
