#include "server/grpc/wire.h"

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>

#include "kvkeep/v1/kvkeep.pb.h"
#include "server/grpc/get_frame.h"
#include "server/grpc/put_frame.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/base/bytes.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

std::string RandomBytes(SeededRandom& random, size_t bytes) {
  std::string out(bytes, '\0');
  random.Fill(std::as_writable_bytes(std::span(out)));
  return out;
}

// The message cut at random places, empty runs included.
std::vector<WireRun> Cut(SeededRandom& random, const std::string& message) {
  std::vector<WireRun> runs;
  const WireRun all = AsBytes(message);
  for (size_t at = 0; at < all.size();) {
    const size_t bytes =
        std::min<size_t>(all.size() - at, random.Below(random.Chance(0.5) ? 3 : 99));
    runs.push_back(all.subspan(at, bytes));
    at += bytes;
  }
  return runs;
}

std::string Joined(const std::vector<WireRun>& runs) {
  std::string out;
  for (const WireRun& run : runs) out += std::string(AsText(run));
  return out;
}

v1::PutFrame RandomFrame(SeededRandom& random) {
  v1::PutFrame frame;
  if (random.Chance(0.5)) {
    frame.mutable_stream()->set_session_token(RandomBytes(random, 16));
    frame.mutable_stream()->set_namespace_digest(RandomBytes(random, random.Below(300)));
  }
  if (random.Chance(0.5)) {
    frame.mutable_chunk()->set_key(RandomBytes(random, 32));
    frame.mutable_chunk()->set_payload_bytes(random.NextU64());
    frame.mutable_chunk()->set_metadata(RandomBytes(random, random.Below(500)));
    if (random.Chance(0.5)) frame.mutable_chunk()->set_checksum(random.NextU64());
    if (random.Chance(0.5)) frame.mutable_chunk()->mutable_hints()->set_transient(true);
  }
  if (random.Chance(0.2)) frame.set_abort(true);
  if (random.Chance(0.8)) frame.set_payload(RandomBytes(random, random.Below(2000)));
  return frame;
}

// Fields that no version knows: they must be skipped.
std::string RandomUnknown(SeededRandom& random) {
  std::string out;
  const uint32_t field = static_cast<uint32_t>(random.Between(16, 5000));
  switch (random.Below(5)) {
    case 0:
      AppendTag(field, WireType::kVarint, &out);
      AppendVarint(random.NextU64(), &out);
      break;
    case 1:
      AppendTag(field, WireType::kFixed64, &out);
      out += RandomBytes(random, 8);
      break;
    case 2:
      AppendTag(field, WireType::kFixed32, &out);
      out += RandomBytes(random, 4);
      break;
    case 3:
      AppendBytesField(field, AsBytes(RandomBytes(random, 1 + random.Below(50))), &out);
      break;
    default:
      AppendTag(field, WireType::kStartGroup, &out);
      AppendBytesField(3, AsBytes("inside"), &out);
      AppendTag(field, WireType::kEndGroup, &out);
  }
  return out;
}

void CheckSame(const PutFrameView& view, const v1::PutFrame& expected) {
  CHECK(view.stream.has_value() == expected.has_stream());
  if (view.stream) CHECK(view.stream->SerializeAsString() == expected.stream().SerializeAsString());
  CHECK(view.chunk.has_value() == expected.has_chunk());
  if (view.chunk) CHECK(view.chunk->SerializeAsString() == expected.chunk().SerializeAsString());
  CHECK(view.abort == expected.abort());
  CHECK(view.payload_bytes == expected.payload().size());
  CHECK(Joined(view.payload) == expected.payload());
}

}  // namespace

TEST_CASE(
    "a PutFrame in pieces of any size and order of fields reads as the generated parser reads it") {
  SeededRandom random(7);
  for (int round = 0; round < 2000; ++round) {
    // Joining serialized messages merges them: so fields come in any order, and more than once.
    std::string message;
    const uint64_t parts = random.Between(0, 4);
    for (uint64_t i = 0; i < parts; ++i) {
      message += RandomFrame(random).SerializeAsString();
      if (random.Chance(0.3)) message += RandomUnknown(random);
    }
    v1::PutFrame expected;
    REQUIRE(expected.ParseFromString(message));
    const absl::StatusOr<PutFrameView> view = ParsePutFrame(Cut(random, message));
    REQUIRE(view.ok());
    CheckSame(*view, expected);
  }
}

TEST_CASE("a damaged PutFrame is refused exactly when the generated parser refuses it") {
  SeededRandom random(8);
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string message = RandomFrame(random).SerializeAsString();
    if (random.Chance(0.5)) message += RandomUnknown(random);
    if (message.empty()) continue;
    if (random.Chance(0.5)) {
      message.resize(random.Below(message.size()));
    } else {
      message[random.Below(std::min<size_t>(message.size(), 40))] ^=
          static_cast<char>(1 << random.Below(8));
    }
    v1::PutFrame expected;
    const bool valid = expected.ParseFromString(message);
    const absl::StatusOr<PutFrameView> view = ParsePutFrame(Cut(random, message));
    INFO("round " << round);
    REQUIRE(view.ok() == valid);
    if (valid) CheckSame(*view, expected);
    refused += valid ? 0 : 1;
  }
  CHECK(refused > 500);
}

TEST_CASE(
    "tags and lengths are written in as many bytes, and bits, as the generated parser takes") {
  // A payload of one byte whose length is written in this many.
  const auto payload = [](absl::string_view length) { return absl::StrCat("\x7a", length, "p"); };
  // A tag of field 10 with more bytes than it needs, or with bits above the 32nd.
  const std::string messages[] = {
      std::string("\xd0\x80\x80\x80\x00\x07", 6),      // five bytes
      std::string("\xd0\x80\x80\x80\x80\x00\x07", 7),  // six
      std::string("\xd0\x80\x80\x80\x50\x07", 6),      // bits 32 to 34
      std::string("\x80\x80\x80\x80\x10\x07", 6),      // only such bits: field 0
      payload(std::string("\x81\x80\x80\x80\x00", 5)),
      payload(std::string("\x81\x80\x80\x80\x80\x00", 6)),
      payload(std::string("\x81\x80\x80\x80\x10", 5)),
  };
  std::vector<bool> accepted;
  for (const std::string& message : messages) {
    v1::PutFrame expected;
    accepted.push_back(expected.ParseFromString(message));
    const std::vector<WireRun> runs = {AsBytes(message)};
    const absl::StatusOr<PutFrameView> view = ParsePutFrame(runs);
    INFO("message " << accepted.size());
    CHECK(view.ok() == accepted.back());
    if (view.ok() && accepted.back()) CheckSame(*view, expected);
  }
  CHECK(accepted == std::vector<bool>{true, false, true, false, true, false, false});
}

TEST_CASE("a header in two halves that make one only together is none") {
  // A token of four bytes, cut after two of them.
  std::string message;
  AppendBytesField(v1::PutFrame::kStreamFieldNumber, AsBytes("\x0a\x04to"), &message);
  AppendBytesField(v1::PutFrame::kStreamFieldNumber, AsBytes("ke"), &message);
  const std::vector<WireRun> runs = {AsBytes(message)};
  CHECK_FALSE(v1::PutFrame().ParseFromString(message));
  CHECK_FALSE(ParsePutFrame(runs).ok());
}

TEST_CASE("the payload of a PutFrame is handed out where it lies, not copied") {
  v1::PutFrame frame;
  frame.set_payload(std::string(1000, 'x'));
  const std::string message = frame.SerializeAsString();
  const std::vector<WireRun> runs = {AsBytes(message).first(500), AsBytes(message).subspan(500)};
  const absl::StatusOr<PutFrameView> view = ParsePutFrame(runs);
  REQUIRE(view.ok());
  REQUIRE(view->payload.size() == 2);
  CHECK(view->payload[1].data() == runs[1].data());
}

TEST_CASE("varints end: eleven bytes, or a message that stops within one, are malformed") {
  uint64_t value = 0;
  const std::string longest = std::string(9, '\xff') + '\x01';
  const std::vector<WireRun> longest_runs = {AsBytes(longest)};
  CHECK(WireReader(longest_runs).ReadVarint(&value));
  CHECK(value == ~uint64_t{0});
  const std::string endless(11, '\xff');
  const std::vector<WireRun> endless_runs = {AsBytes(endless)};
  CHECK_FALSE(WireReader(endless_runs).ReadVarint(&value));
  const std::vector<WireRun> cut = {AsBytes(longest).first(4)};
  CHECK_FALSE(WireReader(cut).ReadVarint(&value));
}

TEST_CASE("a length beyond the message, a field number zero and a stray group end are malformed") {
  for (const char* message :
       {"\x7a\xff\xff\xff\xff\x07", "\x7a\x02x", "\x02\x01", "\x0c", "\x0b\x14"}) {
    const std::string bytes(message);
    const std::vector<WireRun> runs = {AsBytes(bytes)};
    INFO("message of " << bytes.size() << " bytes");
    CHECK_FALSE(ParsePutFrame(runs).ok());
    v1::PutFrame generated;
    CHECK_FALSE(generated.ParseFromString(bytes));
  }
}

TEST_CASE("groups nested without end are refused, not followed") {
  std::string message;
  for (int i = 0; i < 100000; ++i) AppendTag(20, WireType::kStartGroup, &message);
  const std::vector<WireRun> runs = {AsBytes(message)};
  CHECK_FALSE(ParsePutFrame(runs).ok());
}

TEST_CASE("a GetFrame encoded by hand is byte for byte what the generated code writes") {
  SeededRandom random(9);
  for (int round = 0; round < 500; ++round) {
    GetFrameHeader header{
        .key_index = static_cast<uint32_t>(random.Below(3) == 0 ? 0 : random.NextU64()),
        .part_index = static_cast<uint32_t>(random.Below(70)),
        .status = static_cast<v1::ChunkStatus>(random.Below(5)),
        .offset = random.Below(300) * kPieceBytes,
        .chunk_payload_bytes = random.Below(kMaxPayloadBytes),
        .last = random.Chance(0.5),
        .metadata = RandomBytes(random, random.Chance(0.5) ? 0 : random.Below(200)),
    };
    for (uint64_t i = random.Below(5); i > 0; --i)
      header.piece_checksums.push_back(random.NextU64());
    const std::string payload = RandomBytes(random, random.Chance(0.3) ? 0 : random.Below(5000));
    header.frame_payload_bytes = payload.size();

    v1::GetFrame expected;
    expected.set_key_index(header.key_index);
    expected.set_part_index(header.part_index);
    expected.set_status(header.status);
    expected.set_offset(header.offset);
    expected.set_payload_bytes(header.chunk_payload_bytes);
    expected.set_last(header.last);
    for (const uint64_t checksum : header.piece_checksums) expected.add_piece_checksums(checksum);
    expected.set_metadata(header.metadata);
    expected.set_payload(payload);
    REQUIRE(EncodeGetFrameHeader(header) + payload == expected.SerializeAsString());
  }
}

}  // namespace kvkeep
