#include "client/bulk/frames.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "kvkeep/v1/bulk.pb.h"
#include "kvkeep/v1/kvkeep.pb.h"
#include "proto/bulk/frame.h"
#include "tiers/base/checksum.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"

namespace kvkeep::client {
namespace {

using bulk::FrameHead;
using bulk::FrameKind;

// Bytes that are checksummed and sent, or received and checksummed, at once: they are still in the
// nearest caches the second time.
constexpr uint64_t kStepBytes = 256 * kKiB;
constexpr uint64_t kMaxChunkFrameBytes = 4 * kMiB;
constexpr uint32_t kMaxAnswerBytes = 64 * kKiB;  // of a message of the daemon's

absl::Status BrokenBulk(absl::string_view what) {
  return absl::InternalError(absl::StrCat("bulk door: the daemon broke the protocol: ", what));
}

struct Answer {
  FrameHead head;
  std::string message;
};

// Reads a frame's head and message.
absl::StatusOr<Answer> ReadAnswer(BulkStream& stream, BulkStream::Time deadline) {
  std::array<std::byte, bulk::kHeadBytes> head;
  KVKEEP_RETURN_IF_ERROR(stream.Read(head, deadline));
  Answer answer{.head = bulk::DecodeHead(head), .message = {}};
  if (answer.head.message_bytes > kMaxAnswerBytes) {
    return BrokenBulk(absl::StrCat("a message of ", answer.head.message_bytes, " bytes"));
  }
  const bool is_chunk = answer.head.kind == FrameKind::kChunk;
  if (answer.head.payload_bytes > (is_chunk ? kMaxChunkFrameBytes : 0)) {
    return BrokenBulk(absl::StrCat("a payload of ", answer.head.payload_bytes, " bytes"));
  }
  answer.message.resize(answer.head.message_bytes);
  KVKEEP_RETURN_IF_ERROR(stream.Read(std::as_writable_bytes(std::span(answer.message)), deadline));
  return answer;
}

// What the daemon said at the end of a call.
struct Said {
  absl::Status status;
};

absl::StatusOr<Said> EndOf(const Answer& answer) {
  v1::BulkEnd end;
  if (answer.head.kind != FrameKind::kEnd || !end.ParseFromString(answer.message)) {
    return BrokenBulk(absl::StrCat("kind ", static_cast<uint32_t>(answer.head.kind)));
  }
  return Said{absl::Status(static_cast<absl::StatusCode>(end.code()), end.message())};
}

// Sends a frame without payload, to which all answers are still to come.
absl::Status Ask(BulkStream& stream, FrameKind kind, const std::string& message,
                 BulkStream::Time deadline) {
  const std::string frame = bulk::EncodeHead(kind, message.size(), 0) + message;
  std::span<const std::byte> left = std::as_bytes(std::span(frame));
  while (!left.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(const size_t went, stream.WriteSome(left, deadline));
    if (went == 0) return BrokenBulk("an answer before the question");
    left = left.subspan(went);
  }
  return absl::OkStatus();
}

absl::StatusOr<ChunkFrame> ParseChunk(const Answer& answer) {
  v1::GetFrame message;
  if (!message.ParseFromString(answer.message) || !message.payload().empty()) {
    return BrokenBulk("a GetFrame that cannot be read");
  }
  ChunkFrame frame;
  frame.key_index = message.key_index();
  frame.part_index = message.part_index();
  frame.status = message.status();
  frame.offset = message.offset();
  frame.payload_bytes = message.payload_bytes();
  frame.last = message.last();
  frame.piece_checksums.assign(message.piece_checksums().begin(), message.piece_checksums().end());
  frame.metadata = std::move(*message.mutable_metadata());
  frame.payload_size = answer.head.payload_bytes;
  if (frame.status != ChunkFrame::kHit && frame.payload_size > 0) {
    return BrokenBulk("a chunk that is no hit, with payload");
  }
  return frame;
}

// Receives a frame's payload into its place. Returns whether it matches the checksums.
absl::StatusOr<bool> Receive(BulkStream& stream, std::span<std::byte> place,
                             const ChunkFrame& frame, bool verify, BulkStream::Time deadline) {
  bool right = frame.piece_checksums.size() == PieceCount(place.size());
  for (size_t piece = 0; !place.empty(); ++piece) {
    std::span<std::byte> left = place.first(std::min<size_t>(place.size(), kPieceBytes));
    place = place.subspan(left.size());
    Xxh3Stream checksum;
    while (!left.empty()) {
      KVKEEP_ASSIGN_OR_RETURN(
          const size_t came,
          stream.ReadSome(left.first(std::min<size_t>(left.size(), kStepBytes)), deadline));
      if (verify) checksum.Append(left.first(came));
      left = left.subspan(came);
    }
    if (verify && right) right = checksum.Digest() == frame.piece_checksums[piece];
  }
  return right || !verify;
}

absl::Status TakeChunk(BulkStream& stream, const Answer& answer, ChunkAssembler& assembler,
                       BulkStream::Time deadline) {
  KVKEEP_ASSIGN_OR_RETURN(ChunkFrame frame, ParseChunk(answer));
  KVKEEP_ASSIGN_OR_RETURN(const std::span<std::byte> place, assembler.Open(frame));
  if (!place.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(const bool right,
                            Receive(stream, place, frame, assembler.verifies(), deadline));
    return assembler.Close(frame, right);
  }
  std::vector<std::byte> payload(frame.payload_size);
  KVKEEP_RETURN_IF_ERROR(stream.Read(payload, deadline));
  if (!payload.empty()) frame.payload = {payload};
  return assembler.Close(frame, /*right=*/false);
}

absl::StatusOr<Said> MakeGet(BulkStream& stream, const std::string& request,
                             ChunkAssembler& assembler, BulkStream::Time deadline) {
  KVKEEP_RETURN_IF_ERROR(Ask(stream, FrameKind::kGet, request, deadline));
  while (true) {
    KVKEEP_ASSIGN_OR_RETURN(const Answer answer, ReadAnswer(stream, deadline));
    if (answer.head.kind != FrameKind::kChunk) return EndOf(answer);
    KVKEEP_RETURN_IF_ERROR(TakeChunk(stream, answer, assembler, deadline));
  }
}

// Sends a put, and takes its results as they come.
class Putting {
 public:
  Putting(BulkStream& stream, OnBulkResult on_result, BulkStream::Time deadline)
      : stream_(stream), on_result_(on_result), deadline_(deadline) {}

  absl::StatusOr<Said> Make(const std::vector<BulkChunk>& chunks) {
    for (const BulkChunk& chunk : chunks) {
      KVKEEP_RETURN_IF_ERROR(Send(chunk));
      if (end_.has_value()) return *end_;
    }
    KVKEEP_RETURN_IF_ERROR(Write(bulk::EncodeHead(FrameKind::kPutDone, 0, 0)));
    while (!end_.has_value()) KVKEEP_RETURN_IF_ERROR(TakeAnswer());
    return *end_;
  }
  // Returns whether the daemon has taken all of it.
  bool whole() const { return whole_; }

 private:
  absl::Status Send(const BulkChunk& chunk) {
    const size_t pieces = PieceCount(chunk.payload_bytes);
    const uint64_t bytes = chunk.payload_bytes + pieces * sizeof(uint64_t);
    KVKEEP_RETURN_IF_ERROR(
        Write(bulk::EncodeHead(FrameKind::kPut, chunk.message.size(), bytes) + chunk.message));
    std::string trailer;
    Xxh3Stream piece;
    uint64_t of_piece = 0;  // bytes of it
    const auto end_piece = [&] {
      const uint64_t checksum = piece.Digest();
      trailer.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
      piece = Xxh3Stream();
      of_piece = 0;
    };
    for (std::span<const std::byte> run : chunk.runs) {
      while (!run.empty()) {
        const uint64_t most = std::min(kStepBytes, kPieceBytes - of_piece);
        const std::span<const std::byte> step = run.first(std::min<uint64_t>(run.size(), most));
        piece.Append(step);
        KVKEEP_RETURN_IF_ERROR(Write(step));
        if (end_.has_value()) return absl::OkStatus();
        of_piece += step.size();
        if (of_piece == kPieceBytes) end_piece();
        run = run.subspan(step.size());
      }
    }
    if (of_piece > 0) end_piece();
    return Write(trailer);
  }
  absl::Status Write(const std::string& bytes) { return Write(std::as_bytes(std::span(bytes))); }
  absl::Status Write(std::span<const std::byte> bytes) {
    while (!bytes.empty() && !end_.has_value()) {
      KVKEEP_ASSIGN_OR_RETURN(const size_t went, stream_.WriteSome(bytes, deadline_));
      bytes = bytes.subspan(went);
      if (went == 0) KVKEEP_RETURN_IF_ERROR(TakeAnswer());
    }
    whole_ = bytes.empty();
    return absl::OkStatus();
  }
  absl::Status TakeAnswer() {
    KVKEEP_ASSIGN_OR_RETURN(const Answer answer, ReadAnswer(stream_, deadline_));
    if (answer.head.kind == FrameKind::kResult) return on_result_(answer.message);
    KVKEEP_ASSIGN_OR_RETURN(end_, EndOf(answer));
    return absl::OkStatus();
  }

  BulkStream& stream_;
  const OnBulkResult on_result_;
  const BulkStream::Time deadline_;
  std::optional<Said> end_;
  bool whole_ = false;
};

}  // namespace

absl::Status Greet(BulkStream& stream, BulkStream::Time deadline) {
  v1::BulkHello hello;
  hello.set_min_version(bulk::kVersion);
  hello.set_max_version(bulk::kVersion);
  hello.set_authorization(stream.authorization());
  KVKEEP_RETURN_IF_ERROR(Ask(stream, FrameKind::kHello, hello.SerializeAsString(), deadline));
  KVKEEP_ASSIGN_OR_RETURN(const Answer answer, ReadAnswer(stream, deadline));
  if (answer.head.kind == FrameKind::kWelcome) {
    v1::BulkWelcome welcome;
    const bool known =
        welcome.ParseFromString(answer.message) && welcome.version() == bulk::kVersion;
    return known ? absl::OkStatus() : BrokenBulk("a Welcome that cannot be read");
  }
  KVKEEP_ASSIGN_OR_RETURN(const Said refused, EndOf(answer));
  return refused.status.ok() ? BrokenBulk("an End of nothing") : refused.status;
}

BulkEnding BulkGet(BulkStream& stream, const std::string& request, ChunkAssembler& assembler,
                   BulkStream::Time deadline) {
  const absl::StatusOr<Said> end = MakeGet(stream, request, assembler, deadline);
  if (!end.ok()) return {.status = end.status(), .reusable = false};
  return {.status = end->status, .reusable = true};
}

BulkEnding BulkPut(BulkStream& stream, const std::vector<BulkChunk>& chunks, OnBulkResult on_result,
                   BulkStream::Time deadline) {
  Putting putting(stream, on_result, deadline);
  const absl::StatusOr<Said> end = putting.Make(chunks);
  if (!end.ok()) return {.status = end.status(), .reusable = false};
  return {.status = end->status, .reusable = end->status.ok() && putting.whole()};
}

}  // namespace kvkeep::client
