#include "server/grpc/wire.h"

#include <algorithm>
#include <limits>

namespace kvkeep {
namespace {

constexpr int kMaxVarintBytes = 10;
constexpr uint64_t kMaxShortVarintBytes = 5;  // of tags and lengths
constexpr int kMaxGroupDepth = 100;           // what the generated parser allows
constexpr uint64_t kMaxLength = std::numeric_limits<int32_t>::max();

}  // namespace

WireReader::WireReader(std::span<const WireRun> runs) : runs_(runs) {
  for (const WireRun& run : runs_) left_ += run.size();
}

template <typename F>
void WireReader::Take(uint64_t bytes, F&& take) {
  left_ -= bytes;
  while (bytes > 0) {
    const WireRun rest = runs_[run_].subspan(offset_);
    const WireRun part = rest.first(std::min<uint64_t>(rest.size(), bytes));
    if (!part.empty()) take(part);
    bytes -= part.size();
    offset_ += part.size();
    if (offset_ == runs_[run_].size()) {
      ++run_;
      offset_ = 0;
    }
  }
}

bool WireReader::ReadByte(uint8_t* value) {
  if (left_ == 0) return false;
  Take(1, [value](WireRun run) { *value = static_cast<uint8_t>(run[0]); });
  return true;
}

bool WireReader::ReadVarint(uint64_t* value) {
  *value = 0;
  for (int i = 0; i < kMaxVarintBytes; ++i) {
    uint8_t byte = 0;
    if (!ReadByte(&byte)) return false;
    *value |= uint64_t{byte & 0x7fu} << (7 * i);
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

bool WireReader::ReadShortVarint(uint64_t* value) {
  const uint64_t left = left_;
  return ReadVarint(value) && left - left_ <= kMaxShortVarintBytes;
}

bool WireReader::ReadTag(WireTag* tag) {
  uint64_t value = 0;
  if (!ReadShortVarint(&value)) return false;
  value = static_cast<uint32_t>(value);  // bits above are dropped, as the generated parser does
  tag->field = static_cast<uint32_t>(value >> 3);
  tag->type = static_cast<WireType>(value & 7);
  return tag->field != 0 && tag->type <= WireType::kFixed32;
}

bool WireReader::ReadLength(uint64_t* length) {
  return ReadShortVarint(length) && *length <= kMaxLength && *length <= left_;
}

bool WireReader::ReadBytes(std::string* value) {
  uint64_t length = 0;
  if (!ReadLength(&length)) return false;
  Take(length, [value](WireRun run) {
    value->append(reinterpret_cast<const char*>(run.data()), run.size());
  });
  return true;
}

bool WireReader::ReadRuns(std::vector<WireRun>* value, uint64_t* bytes) {
  if (!ReadLength(bytes)) return false;
  Take(*bytes, [value](WireRun run) { value->push_back(run); });
  return true;
}

bool WireReader::Advance(uint64_t bytes) {
  if (bytes > left_) return false;
  Take(bytes, [](WireRun) {});
  return true;
}

bool WireReader::Skip(const WireTag& tag) { return SkipNested(tag, 0); }

bool WireReader::SkipNested(const WireTag& tag, int depth) {
  uint64_t value = 0;
  switch (tag.type) {
    case WireType::kVarint:
      return ReadVarint(&value);
    case WireType::kFixed64:
      return Advance(8);
    case WireType::kFixed32:
      return Advance(4);
    case WireType::kBytes:
      return ReadLength(&value) && Advance(value);
    case WireType::kEndGroup:
      return false;  // the end of a group that was never opened
    case WireType::kStartGroup:
      break;
  }
  if (depth == kMaxGroupDepth) return false;
  while (true) {
    WireTag inner;
    if (!ReadTag(&inner)) return false;
    if (inner.type == WireType::kEndGroup) return inner.field == tag.field;
    if (!SkipNested(inner, depth + 1)) return false;
  }
}

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

void AppendTag(uint32_t field, WireType type, std::string* out) {
  AppendVarint(uint64_t{field} << 3 | static_cast<uint64_t>(type), out);
}

void AppendVarintField(uint32_t field, uint64_t value, std::string* out) {
  if (value == 0) return;
  AppendTag(field, WireType::kVarint, out);
  AppendVarint(value, out);
}

void AppendBytesField(uint32_t field, std::span<const std::byte> value, std::string* out) {
  if (value.empty()) return;
  AppendTag(field, WireType::kBytes, out);
  AppendVarint(value.size(), out);
  out->append(reinterpret_cast<const char*>(value.data()), value.size());
}

void AppendPackedFixed64(uint32_t field, std::span<const uint64_t> values, std::string* out) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fixed64 is little-endian on the wire");
  AppendBytesField(field, std::as_bytes(values), out);
}

}  // namespace kvkeep
