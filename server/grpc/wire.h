// A small reader and writer of the protobuf wire format, for the two payload paths (Put, Get).
//
// The generated parser copies a payload twice; this one reads a message that lies scattered over
// memory runs (a ByteBuffer's slices) and hands payloads out as runs of the same memory. It accepts
// what the generated parser accepts: fields in any order, unknown fields, groups. Every read
// returns false when the message is malformed; after that the reader must not be used. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvkeep {

using WireRun = std::span<const std::byte>;

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5,
};

struct WireTag {
  uint32_t field = 0;
  WireType type = WireType::kVarint;
};

class WireReader {
 public:
  // `runs` and the memory they name must outlive the reader.
  explicit WireReader(std::span<const WireRun> runs);

  bool done() const { return left_ == 0; }
  bool ReadTag(WireTag* tag);
  bool ReadVarint(uint64_t* value);
  // A length-delimited value: appended to `value`, or as runs of the memory it lies in.
  bool ReadBytes(std::string* value);
  bool ReadRuns(std::vector<WireRun>* value, uint64_t* bytes);
  // Passes over the value of `tag`, whatever its type.
  bool Skip(const WireTag& tag);

 private:
  bool ReadByte(uint8_t* value);
  bool ReadShortVarint(uint64_t* value);
  bool ReadLength(uint64_t* length);
  bool Advance(uint64_t bytes);
  bool SkipNested(const WireTag& tag, int depth);
  template <typename F>
  void Take(uint64_t bytes, F&& take);  // REQUIRES: bytes <= left_

  std::span<const WireRun> runs_;
  size_t run_ = 0;     // of the next byte
  size_t offset_ = 0;  // within it
  uint64_t left_ = 0;  // bytes of the message not read yet
};

// Writers append to `out`; zero values are left out as proto3 does.
void AppendVarint(uint64_t value, std::string* out);
void AppendTag(uint32_t field, WireType type, std::string* out);
void AppendVarintField(uint32_t field, uint64_t value, std::string* out);
void AppendBytesField(uint32_t field, std::span<const std::byte> value, std::string* out);
void AppendPackedFixed64(uint32_t field, std::span<const uint64_t> values, std::string* out);

}  // namespace kvkeep
