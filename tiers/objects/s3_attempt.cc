// How one attempt takes the body of its answer.
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/objects/s3_request.h"

namespace kvkeep {

absl::Status S3Store::Attempt::Begin(const HttpHead& head) {
  if (request_.checks) return absl::OkStatus();  // its bytes are nobody's
  if (request_.verb != ObjectVerb::kGet) {
    request_.page.clear();
    return absl::OkStatus();
  }
  if (dropped || (request_.winner != nullptr && request_.winner != this)) {
    lost = true;
    return absl::CancelledError("the other one was first");
  }
  if (absl::Status checked = CheckGetHead(asked, head); !checked.ok()) {
    bad_head = true;
    return checked;
  }
  request_.winner = this;
  timed = true;
  endpoint.hedger.Served(store_.now() - sent_at);
  store_.counters_.hedges_won += hedge ? 1 : 0;
  store_.DropOther(request_, *this);
  return BeginRead(head);
}

absl::Status S3Store::Attempt::BeginRead(const HttpHead& head) {
  const ObjectHead is = ReadObjectHead(head);
  std::optional<uint64_t> bytes = head.content_bytes;
  if (head.status == 206) {
    const auto range = ParseContentRange(FindHeader(head.headers, "content-range"));
    KVKEEP_CHECK(range.has_value());  // CheckGetHead has seen it
    bytes = range->last - range->first + 1;
  }
  if (asked.has_value()) bytes = std::min(bytes.value_or(asked->bytes), asked->bytes);
  KVKEEP_CHECK(resumes == request_.sink_begun);
  if (resumes) {
    // The server ignores If-Match, or the object has another length by now.
    other = is.etag != request_.head.etag || !bytes.has_value() ||
            request_.given + *bytes != request_.promised;
    return other ? absl::DataLossError("it was replaced meanwhile") : absl::OkStatus();
  }
  KVKEEP_CHECK(request_.given == 0);
  request_.first_byte = store_.now() - request_.begun;
  request_.head = is;
  request_.promised = bytes;
  request_.sink_begun = true;
  request_.sink_said = request_.sink->Begin(is);
  return request_.sink_said;
}

absl::Status S3Store::Attempt::Take(std::span<const std::byte> bytes) {
  if (request_.checks) return absl::OkStatus();
  if (request_.verb != ObjectVerb::kGet) {
    absl::StrAppend(&request_.page, AsText(bytes));
    return absl::OkStatus();
  }
  KVKEEP_CHECK(request_.winner == this);
  // Cancelled meanwhile: bytes on their way are not wanted any more.
  if (request_.cancelled) return absl::CancelledError("cancelled");
  if (request_.promised.has_value()) {
    KVKEEP_CHECK(request_.given <= *request_.promised);
    const uint64_t left = *request_.promised - request_.given;
    full = bytes.size() > left;
    bytes = bytes.first(std::min<uint64_t>(bytes.size(), left));
  }
  if (!bytes.empty()) {
    if (!request_.small()) endpoint.body_at = store_.now();
    request_.given += bytes.size();
    store_.counters_.read_bytes += bytes.size();
    request_.sink_said = request_.sink->Take(bytes);
    if (!request_.sink_said.ok()) return request_.sink_said;
  }
  return full ? absl::CancelledError("that was all") : absl::OkStatus();
}

}  // namespace kvkeep
