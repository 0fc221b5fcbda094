// The two payload messages, read and written by hand for speed, compared with the generated code:
// the same messages are accepted and the same fields found, wherever the bytes were cut; what is
// written parses.
#include "kvkeep/v1/kvkeep.pb.h"
#include "server/grpc/get_frame.h"
#include "server/grpc/put_frame.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"
#include "tiers/base/bytes.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

// Cuts as `cuts` says, empty runs included.
std::vector<WireRun> Cut(const std::string& message, uint64_t cuts) {
  std::vector<WireRun> runs;
  WireRun left = AsBytes(message);
  for (; cuts != 0 && !left.empty(); cuts >>= 4) {
    const size_t take = std::min<size_t>(left.size(), cuts & 15);
    runs.push_back(left.first(take));
    left = left.subspan(take);
  }
  runs.push_back(left);
  return runs;
}

std::string Joined(const std::vector<WireRun>& runs) {
  std::string out;
  for (const WireRun& run : runs) out += std::string(AsText(run));
  return out;
}

void CheckPutFrame(InputReader& input) {
  const uint64_t cuts = input.U64();
  const std::string message = input.RestText();
  v1::PutFrame expected;
  const bool valid = expected.ParseFromString(message);
  const absl::StatusOr<PutFrameView> view = ParsePutFrame(Cut(message, cuts));
  KVKEEP_CHECK(view.ok() == valid);
  if (!valid) return;
  KVKEEP_CHECK(view->abort == expected.abort());
  KVKEEP_CHECK(view->stream.has_value() == expected.has_stream());
  KVKEEP_CHECK(view->chunk.has_value() == expected.has_chunk());
  if (view->stream.has_value()) {
    KVKEEP_CHECK(view->stream->SerializeAsString() == expected.stream().SerializeAsString());
  }
  if (view->chunk.has_value()) {
    KVKEEP_CHECK(view->chunk->SerializeAsString() == expected.chunk().SerializeAsString());
  }
  KVKEEP_CHECK(view->payload_bytes == expected.payload().size());
  KVKEEP_CHECK(Joined(view->payload) == expected.payload());
}

void CheckGetFrame(InputReader& input) {
  GetFrameHeader header;
  header.key_index = static_cast<uint32_t>(input.U64());
  header.part_index = input.U16();
  header.status = static_cast<v1::ChunkStatus>(input.U8() % 5);
  header.offset = input.U64();
  header.chunk_payload_bytes = input.U64();
  header.last = input.U8() % 2 != 0;
  for (uint8_t i = input.U8() % 5; i > 0; --i) header.piece_checksums.push_back(input.U64());
  header.metadata = input.Text(input.U8());
  const std::string payload = input.RestText();
  header.frame_payload_bytes = payload.size();
  v1::GetFrame frame;
  KVKEEP_CHECK(frame.ParseFromString(EncodeGetFrameHeader(header) + payload));
  KVKEEP_CHECK(frame.key_index() == header.key_index && frame.part_index() == header.part_index);
  KVKEEP_CHECK(frame.status() == header.status && frame.offset() == header.offset);
  KVKEEP_CHECK(frame.payload_bytes() == header.chunk_payload_bytes && frame.last() == header.last);
  KVKEEP_CHECK(std::equal(frame.piece_checksums().begin(), frame.piece_checksums().end(),
                          header.piece_checksums.begin(), header.piece_checksums.end()));
  KVKEEP_CHECK(frame.metadata() == header.metadata && frame.payload() == payload);
  KVKEEP_CHECK(frame.GetReflection()->GetUnknownFields(frame).empty());
}

void RunWire(std::span<const uint8_t> bytes) {
  InputReader input(bytes);
  return input.U8() % 4 == 0 ? CheckGetFrame(input) : CheckPutFrame(input);
}

FuzzInput PutSeed(uint64_t cuts, const std::string& message) {
  FuzzInput seed = {1};
  for (int i = 0; i < 8; ++i) seed.push_back(static_cast<uint8_t>(cuts >> (8 * i)));
  seed.insert(seed.end(), message.begin(), message.end());
  return seed;
}

std::vector<FuzzInput> WireSeeds() {
  v1::PutFrame frame;
  frame.mutable_stream()->set_session_token(std::string(16, 's'));
  frame.mutable_stream()->set_namespace_digest(std::string(16, 'n'));
  frame.mutable_chunk()->set_key(std::string(32, 'k'));
  frame.mutable_chunk()->set_payload_bytes(9);
  frame.mutable_chunk()->set_checksum(77);
  frame.mutable_chunk()->mutable_hints()->set_transient(true);
  frame.set_payload("payload 9");
  const std::string whole = frame.SerializeAsString();
  std::string unknown = whole;
  AppendTag(100, WireType::kStartGroup, &unknown);
  AppendBytesField(3, AsBytes("inside"), &unknown);
  AppendTag(101, WireType::kStartGroup, &unknown);
  AppendTag(101, WireType::kEndGroup, &unknown);
  AppendTag(100, WireType::kEndGroup, &unknown);
  AppendTag(102, WireType::kFixed32, &unknown);
  unknown += "4444";
  v1::PutFrame abort;
  abort.set_abort(true);
  FuzzInput get = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1};
  get.resize(60, 7);
  return {PutSeed(0, whole), PutSeed(0x3210'9876'5432'1011, whole + whole), PutSeed(0x55, unknown),
          PutSeed(0, abort.SerializeAsString()), get};
}

}  // namespace

const FuzzTarget kWireTarget{.name = "wire", .run = RunWire, .seeds = WireSeeds};

}  // namespace kvkeep
