#include "tiers/io/device_queue.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/units.h"
#include "tiers/io/errno_status.h"

namespace kvkeep {
namespace {

// One of every 1 + kReadsPerWrite fragments issued while both kinds wait is a write. Writes get the
// same share of the depth and of the bytes.
constexpr uint32_t kReadsPerWrite = 3;

// Returns 1 ms, doubled with each try.
std::chrono::milliseconds PauseAfter(uint32_t tries) {
  constexpr uint32_t kDoublings = 6;
  const std::chrono::milliseconds pause(1 << std::min(tries - 1, kDoublings));
  return std::min(pause, DeviceQueue::kLongestPause);
}

}  // namespace

DeviceQueue::DeviceQueue(const Limits& limits, IoCounters* counters)
    : limits_(limits), counters_(counters) {
  KVKEEP_CHECK(limits.depth > 0 && limits.max_bytes_out > 0);
  KVKEEP_CHECK(limits.max_io_bytes > 0 && limits.max_io_bytes % kBlockBytes == 0);
}

DeviceQueue::~DeviceQueue() {
  KVKEEP_CHECK(!has_waiting());
  KVKEEP_CHECK(out_ == 0 && bytes_out_ == 0 && write_bytes_out_ == 0);
}

void DeviceQueue::Push(IoOperation operation, absl::string_view name,
                       std::shared_ptr<OpenDevice> file) {
  KVKEEP_CHECK(operation.data != nullptr && operation.bytes > 0 && counters_->queued > 0);
  const bool read = operation.kind == IoOperation::Kind::kRead;
  auto request = std::make_shared<IoRequest>();
  request->operation = std::move(operation);
  request->file = std::move(file);
  request->name = name;
  (read ? reads_ : writes_).push_back(std::move(request));
}

DeviceQueue::Waiting* DeviceQueue::Choose() {
  if (reads_.empty()) return writes_.empty() ? nullptr : &writes_;
  if (writes_.empty()) return &reads_;
  const bool writes_turn = reads_since_write_ >= kReadsPerWrite && !WritesHoldTheirShare();
  return writes_turn ? &writes_ : &reads_;
}

// They hold nothing: then they may have one fragment, however small their share is.
bool DeviceQueue::WritesHoldTheirShare() const {
  constexpr uint32_t kShare = 1 + kReadsPerWrite;
  return writes_out_ > 0 && (writes_out_ >= limits_.depth / kShare ||
                             write_bytes_out_ >= limits_.max_bytes_out / kShare);
}

std::optional<IoFragment> DeviceQueue::Next() {
  KVKEEP_CHECK(out_ <= limits_.depth);
  if (out_ == limits_.depth) return std::nullopt;
  Waiting* const waiting = Choose();
  if (waiting == nullptr) return std::nullopt;

  IoFragment fragment{.request = waiting->front()};
  IoRequest& request = *fragment.request;
  KVKEEP_CHECK(request.cut_bytes < request.operation.bytes);
  fragment.offset = request.operation.offset.value() + request.cut_bytes;
  fragment.data = request.operation.data + request.cut_bytes;
  fragment.bytes = std::min(limits_.max_io_bytes, request.operation.bytes - request.cut_bytes);
  if (out_ > 0 && bytes_out_ + fragment.bytes > limits_.max_bytes_out) return std::nullopt;

  request.cut_bytes += fragment.bytes;
  ++request.fragments_out;
  ++out_;
  bytes_out_ += fragment.bytes;
  ++counters_->in_flight;
  if (fragment.is_read()) {
    reads_since_write_ = std::min(reads_since_write_ + 1, kReadsPerWrite);
  } else {
    reads_since_write_ = 0;
    ++writes_out_;
    write_bytes_out_ += fragment.bytes;
  }
  if (request.cut_bytes == request.operation.bytes) {
    waiting->pop_front();
    --counters_->queued;
  }
  return fragment;
}

DeviceQueue::Outcome DeviceQueue::OnResult(IoFragment& fragment, int64_t result) {
  KVKEEP_CHECK(fragment.request != nullptr && fragment.bytes > 0);
  if (result < 0) return Error(fragment, static_cast<int>(-result));
  KVKEEP_CHECK(static_cast<uint64_t>(result) <= fragment.bytes);
  return Progress(fragment, static_cast<size_t>(result));
}

DeviceQueue::Outcome DeviceQueue::Progress(IoFragment& fragment, size_t moved) {
  if (moved == fragment.bytes) return Finish(fragment, absl::OkStatus());
  if (moved == 0) {
    return Finish(fragment,
                  absl::DataLossError(absl::StrCat(
                      Describe(fragment), ": the device ends here, it was shortened after open")));
  }
  ++counters_->short_resumed;
  // Resume at a block boundary, or O_DIRECT refuses: the bytes of a started block move again.
  const size_t whole = moved / kBlockBytes * kBlockBytes;
  bytes_out_ -= whole;
  if (!fragment.is_read()) write_bytes_out_ -= whole;
  fragment.offset += whole;
  fragment.data += whole;
  fragment.bytes -= whole;
  fragment.fruitless = whole > 0 ? 0 : fragment.fruitless + 1;
  if (fragment.fruitless >= kMaxFruitless) {
    return Finish(fragment, absl::DataLossError(absl::StrCat(
                                Describe(fragment), ": the device ends inside this block")));
  }
  return {.next = Outcome::Next::kAgain};
}

DeviceQueue::Outcome DeviceQueue::Error(IoFragment& fragment, int error) {
  switch (error) {
    case EINTR:
    case EAGAIN:
    case EBUSY:
    case ENOMEM:
      if (++fragment.fruitless >= kMaxFruitless) break;
      ++counters_->retried;
      if (error == EINTR) return {.next = Outcome::Next::kAgain};
      return {.next = Outcome::Next::kAgainLater, .pause = PauseAfter(fragment.fruitless)};
    default:
      break;
  }
  return Finish(fragment, ErrnoStatus(error, Describe(fragment)));
}

DeviceQueue::Outcome DeviceQueue::Finish(IoFragment& fragment, absl::Status status) {
  IoRequest& request = *fragment.request;
  KVKEEP_CHECK(request.fragments_out > 0 && out_ > 0 && bytes_out_ >= fragment.bytes);
  --request.fragments_out;
  --out_;
  bytes_out_ -= fragment.bytes;
  --counters_->in_flight;
  if (!fragment.is_read()) {
    KVKEEP_CHECK(writes_out_ > 0 && write_bytes_out_ >= fragment.bytes);
    --writes_out_;
    write_bytes_out_ -= fragment.bytes;
  }

  if (!status.ok() && request.status.ok()) {
    request.status = std::move(status);
    if (request.cut_bytes < request.operation.bytes) {  // the rest is not worth moving
      Waiting& waiting = fragment.is_read() ? reads_ : writes_;
      KVKEEP_CHECK(!waiting.empty() && waiting.front() == fragment.request);
      waiting.pop_front();
      --counters_->queued;
      request.cut_bytes = request.operation.bytes;
    }
  }
  Outcome outcome;
  if (request.fragments_out == 0 && request.cut_bytes == request.operation.bytes) {
    Count(request);
    outcome.completed = std::move(fragment.request);
  }
  fragment.request = nullptr;
  return outcome;
}

std::vector<std::shared_ptr<IoRequest>> DeviceQueue::FailWaiting(const absl::Status& status) {
  KVKEEP_CHECK(!status.ok());
  std::vector<std::shared_ptr<IoRequest>> completed;
  for (Waiting* waiting : {&reads_, &writes_}) {
    for (; !waiting->empty(); waiting->pop_front()) {
      IoRequest& request = *waiting->front();
      --counters_->queued;
      request.cut_bytes = request.operation.bytes;
      if (request.status.ok()) request.status = status;
      if (request.fragments_out > 0) continue;
      Count(request);
      completed.push_back(std::move(waiting->front()));
    }
  }
  return completed;
}

void DeviceQueue::Count(const IoRequest& request) {
  if (!request.status.ok()) {
    ++counters_->errors;
  } else if (request.operation.kind == IoOperation::Kind::kRead) {
    ++counters_->reads;
    counters_->read_bytes += request.operation.bytes;
  } else {
    ++counters_->writes;
    counters_->write_bytes += request.operation.bytes;
  }
}

std::string DeviceQueue::Describe(const IoFragment& fragment) {
  return absl::StrCat(fragment.request->name, ": ", fragment.is_read() ? "read" : "write", " of ",
                      fragment.bytes, " bytes at ", fragment.offset);
}

}  // namespace kvkeep
