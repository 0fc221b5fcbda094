#include "tiers/remote/image_reading.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstring>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/remote/sealed_header.h"

namespace kvkeep {
namespace {

// Returns the piece of the byte at `offset`. REQUIRES: the byte is behind the header page.
size_t PieceAt(const ImageShape& shape, uint64_t offset) {
  KVKEEP_CHECK(offset >= kHeaderBytes && shape.pieces() > 0);
  return std::min((offset - kHeaderBytes) / kPieceBytes, uint64_t{shape.pieces() - 1});
}

}  // namespace

absl::Status BucketSource::PartSink::Begin(const ObjectHead& head) {
  // The image is cut off or has another shape; the next Find tells which.
  if (head.object_bytes != reading_->bytes) {
    return Refuse(absl::UnavailableError("an image beyond the node has another size than before"));
  }
  if (is_first_ && reading_->request.age != nullptr) {
    const auto age = source_.AgeOf(head);
    if (age.has_value()) reading_->request.age(*age);
  }
  if (!is_first_ || end_ == reading_->bytes) return absl::OkStatus();
  if (head.etag.empty()) {
    source_.Count(&BucketSourceCounters::no_versions);
    return Refuse(absl::UnavailableError("the object store names no version of an object"));
  }
  {
    MutexLock lock(&reading_->mu);
    reading_->etag = head.etag;
    reading_->begun = true;
  }
  source_.StartParts(reading_);
  return absl::OkStatus();
}

absl::Status BucketSource::PartSink::Take(std::span<const std::byte> bytes) {
  KVKEEP_CHECK(bytes.size() <= end_ - at_);
  const ImageShape& shape = reading_->request.shape;
  while (!bytes.empty()) {
    std::span<std::byte> to;
    if (at_ < kHeaderBytes) {
      to = reading_->request.header.subspan(at_);
    } else {
      const uint64_t piece_end = shape.piece_end(PieceAt(shape, at_));
      const uint64_t wanted = std::min(piece_end, end_) - at_;
      to = reading_->request.memory(at_, wanted);
      KVKEEP_CHECK(to.size() <= wanted);
    }
    KVKEEP_CHECK(!to.empty());
    const size_t most = std::min(to.size(), bytes.size());
    std::memcpy(to.data(), bytes.data(), most);
    bytes = bytes.subspan(most);
    at_ += most;
    if (at_ == kHeaderBytes) {
      KVKEEP_RETURN_IF_ERROR(TellHeader());
      continue;
    }
    if (at_ < kHeaderBytes) continue;
    const bool ends_piece = at_ == shape.piece_end(PieceAt(shape, at_ - 1));
    if (ends_piece || at_ == end_) TellPiece(absl::OkStatus(), at_);
  }
  return absl::OkStatus();
}

absl::Status BucketSource::PartSink::TellHeader() {
  KVKEEP_CHECK(is_first_ && told_ == 0);
  if (!OpenHeader(source_.keys_.header, reading_->request.header)) {
    source_.Count(&BucketSourceCounters::bad_seal);
    return Refuse(absl::DataLossError("the header page beyond the node is not sealed by us"));
  }
  // What else the page says is for the reader to check. But no object may pass for the plain image
  // of a peer, which a reader believes for its sender's sake.
  const absl::StatusOr<ImageHeader> header =
      DecodeHeader(reading_->request.header, source_.keys_.mac);
  if (header.ok() && (header->placement.tier != Tier::kG4 || !header->encryption.has_value())) {
    source_.Count(&BucketSourceCounters::bad_plain);
    return Refuse(absl::DataLossError("the image beyond the node is not of the form kept there"));
  }
  told_ = kHeaderBytes;
  reading_->request.header_done(absl::OkStatus());
  return absl::OkStatus();
}

// Reports the bytes from told_ up to `to`, which lies in the piece of byte told_, or ends it.
void BucketSource::PartSink::TellPiece(const absl::Status& status, uint64_t to) {
  KVKEEP_CHECK(told_ >= kHeaderBytes);
  const size_t piece = PieceAt(reading_->request.shape, told_);
  KVKEEP_CHECK(to > told_ && to <= end_);
  KVKEEP_CHECK(to <= reading_->request.shape.piece_end(piece));
  const uint64_t bytes = to - told_;
  told_ = to;
  reading_->request.piece_done(piece, bytes, status);
}

void BucketSource::PartSink::TellRest(const absl::Status& status) {
  KVKEEP_CHECK(!status.ok());
  if (told_ < kHeaderBytes) {
    told_ = kHeaderBytes;
    reading_->request.header_done(status);
  }
  const ImageShape& shape = reading_->request.shape;
  while (told_ < end_) {
    TellPiece(status, std::min(shape.piece_end(PieceAt(shape, told_)), end_));
  }
}

// ---- parts

void BucketSource::Read(ReadRequest request) {
  KVKEEP_CHECK(ValidateShape(request.shape).ok());
  std::string name = NameOf(request.id);
  const MonotonicTime until = Planted(Canary::kDeadlineIgnored)
                                  ? MonotonicTime::max()
                                  : std::min(request.deadline, After(options_.read_within));
  const auto reading = std::make_shared<Reading>(std::move(request), std::move(name), until);
  const bool busy = limits_->BeginReading() >= options_.whole_beside;
  reading->part_bytes =
      busy || reading->bytes <= options_.whole_up_to ? reading->bytes : PartBytes(reading->bytes);
  KVKEEP_CHECK(reading->part_bytes >= kHeaderBytes && reading->part_bytes % kBlockBytes == 0);
  Count(&BucketSourceCounters::reads);
  {
    MutexLock lock(&reading->mu);
    reading->next = reading->part_bytes;
    reading->under_way = 1;
  }
  StartPart(reading, 0);
}

// Returns a part size near part_bytes that cuts the image into about equal parts, so that no part
// is a sliver.
uint64_t BucketSource::PartBytes(uint64_t image_bytes) const {
  const uint64_t parts = (image_bytes + options_.part_bytes / 2) / options_.part_bytes;
  const uint64_t blocks = image_bytes / kBlockBytes;
  return DivideRoundUp(blocks, std::max<uint64_t>(parts, 1)) * kBlockBytes;
}

// Starts as many parts as may be under way; after the first, none before that one has told its
// version. After a failure it reports the rest without asking.
void BucketSource::StartParts(const std::shared_ptr<Reading>& reading) {
  while (true) {
    uint64_t first = 0;
    absl::Status failed;
    {
      MutexLock lock(&reading->mu);
      if (!reading->begun || reading->next >= reading->bytes) return;
      failed = reading->failed;
      if (failed.ok() && reading->under_way >= options_.parts_at_once) return;
      first = reading->next;
      reading->next = std::min(first + reading->part_bytes, reading->bytes);
      if (failed.ok()) ++reading->under_way;
    }
    if (failed.ok()) {
      StartPart(reading, first);
    } else {
      PartSink(this, reading, first, std::min(first + reading->part_bytes, reading->bytes))
          .TellRest(failed);
    }
  }
}

void BucketSource::StartPart(const std::shared_ptr<Reading>& reading, uint64_t first) {
  const uint64_t end = std::min(first + reading->part_bytes, reading->bytes);
  auto sink = std::make_unique<PartSink>(this, reading, first, end);
  PartSink* const into = sink.get();
  GetObject get{.name = reading->name, .deadline = reading->deadline};
  // Asks for a whole object without a range: then a server may send its file without a copy.
  if (end - first < reading->bytes) get.range = ByteRange{first, end - first};
  if (first > 0) {
    MutexLock lock(&reading->mu);
    KVKEEP_CHECK(!reading->etag.empty());
    get.if_match = reading->etag;
  }
  const ObjectCall call =
      objects_.Get(std::move(get), into,
                   [this, reading, sink = std::move(sink)](ObjectAnswer answer) {
                     OnPart(reading, *sink, answer);
                   });
  bool late = false;
  {
    MutexLock lock(&reading->mu);
    reading->calls.push_back(call);
    late = !reading->failed.ok();
  }
  if (late) objects_.Cancel(call);
}

void BucketSource::OnPart(const std::shared_ptr<Reading>& reading, PartSink& sink,
                          const ObjectAnswer& answer) {
  absl::Status status = sink.refused();
  if (status.ok() && !(answer.ok() && sink.complete())) {
    switch (answer.outcome) {
      case ObjectOutcome::kOk:  // fewer bytes than its own size
      case ObjectOutcome::kShort:
      case ObjectOutcome::kChanged:
        Count(&BucketSourceCounters::replaced);
        status = absl::UnavailableError("an image beyond the node was replaced while it was read");
        break;
      case ObjectOutcome::kCancelled:
        status = absl::UnavailableError("a read of an image beyond the node was cut short");
        break;
      case ObjectOutcome::kRefused:
        NoteAbsent(reading->request.id);
        status = absl::UnavailableError(
            absl::StrCat("an image beyond the node is refused: ", answer.error.code));
        break;
      default: status = ToStatus(answer.outcome, "reading an image beyond the node", answer.error);
    }
    if (answer.outcome == ObjectOutcome::kAbsent) {
      NoteAbsent(reading->request.id);
      MutexLock lock(&reading->mu);
      // It was there when the first part began, and other parts' pieces may have been told of: to
      // say "not there" now would have KeyedSource ask for the whole image once more. The first
      // part may say so too, when it was resumed.
      if (!reading->etag.empty()) {
        status = absl::UnavailableError("an image beyond the node was removed while it was read");
      }
    }
  }
  std::vector<ObjectCall> cancelled;
  bool ended = false, well = false;
  {
    MutexLock lock(&reading->mu);
    KVKEEP_CHECK(reading->under_way > 0);
    --reading->under_way;
    reading->begun = true;
    if (!status.ok() && reading->failed.ok()) {
      reading->failed = status;
      cancelled = reading->calls;
    }
    if (!reading->failed.ok() && !status.ok()) status = reading->failed;
    well = reading->failed.ok();
    ended = reading->under_way == 0 && (reading->next >= reading->bytes || !well);
  }
  for (const ObjectCall call : cancelled) objects_.Cancel(call);
  if (ended) {
    limits_->EndReading();
    Count(well ? &BucketSourceCounters::read_bytes : &BucketSourceCounters::failed_reads,
          well ? reading->bytes : 1);
  }
  if (!status.ok()) sink.TellRest(status);
  StartParts(reading);
}

}  // namespace kvkeep
