#include "client/local/gpu_call.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "client/local/test_point.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using local::Kind;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Limit of a body, which leaves a message room for its fixed part and the largest chunk.
constexpr size_t kMaxBodyBytes = local::kMaxMessageBytes - 64 * kKiB;
// The most by which the daemon's deadline precedes the caller's, for cancelling and the answer.
constexpr milliseconds kMostMargin{1'000};

}  // namespace

absl::StatusOr<uint64_t> GpuCall::PayloadBytes(const std::vector<GpuRun>& runs) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].bytes == 0) return absl::InvalidArgumentError(absl::StrCat("runs[", i, "]: empty"));
    if (runs[i].bytes > kMaxPayloadBytes - bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("runs: more than the ", kMaxPayloadBytes, " bytes of a chunk"));
    }
    bytes += runs[i].bytes;
  }
  if (bytes == 0) return absl::InvalidArgumentError("runs: none");
  return bytes;
}

absl::Status GpuCall::CheckSkip(const GpuRun& run) const {
  if (kind_ == Kind::kPutFromGpu || run.offset != 0) {
    return absl::InvalidArgumentError(
        "runs: of no region; a get skips bytes by a run of region 0 and offset 0");
  }
  if (what_.session->welcome().version < local::kSkippedBytesSince) {
    return absl::FailedPreconditionError(
        "runs: of no region; the daemon is too old to skip bytes of a chunk");
  }
  return absl::OkStatus();
}

absl::Status GpuCall::CheckRun(const GpuRun& run) {
  if (run.region == GpuRegionId()) return CheckSkip(run);
  auto found = regions_.find(run.region);
  if (found == regions_.end()) {
    LocalGpuRegionPtr region = what_.regions->Find(run.region);
    if (region == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("runs: region ", run.region.value(), " is not registered"));
    }
    if (!held_.empty() && held_[0]->memory.gpu_uuid != region->memory.gpu_uuid) {
      return absl::InvalidArgumentError("runs: of more than one GPU");
    }
    held_.push_back(region);
    found = regions_.emplace(run.region, Region{.region = std::move(region), .known = {}}).first;
  }
  const uint64_t bytes = found->second.region->memory.bytes;
  if (run.offset > bytes || run.bytes > bytes - run.offset) {
    return absl::InvalidArgumentError(absl::StrCat("runs: ", run.bytes, " bytes at ", run.offset,
                                                   "; region ", run.region.value(), " has ",
                                                   bytes));
  }
  return absl::OkStatus();
}

absl::Status GpuCall::Prepare(std::vector<Item> items) {
  items_ = std::move(items);
  for (const Item& item : items_) {
    for (const GpuRun& run : *item.runs) KVKEEP_RETURN_IF_ERROR(CheckRun(run));
    if (std::none_of(item.runs->begin(), item.runs->end(),
                     [](const GpuRun& run) { return run.region != GpuRegionId(); })) {
      return absl::InvalidArgumentError(
          absl::StrCat("chunks[", item.index, "].runs: none that is of a region"));
    }
  }
  if (kind_ == Kind::kPutFromGpu && has_reused() && !what_.session->holds_deadlines()) {
    return absl::FailedPreconditionError(
        "gpu: memory that is reused is put only to a daemon that holds absolute deadlines: of "
        "protocol 8 or newer, and by the same CLOCK_MONOTONIC");
  }
  return absl::OkStatus();
}

bool GpuCall::has_reused() const {
  return std::any_of(held_.begin(), held_.end(), [](const LocalGpuRegionPtr& region) {
    return region->memory.reused;
  });
}

bool GpuCall::IsBound() const {
  return std::all_of(held_.begin(), held_.end(), [this](const LocalGpuRegionPtr& region) {
    return GpuRegions::IsBound(*what_.session, region.get());
  });
}

void GpuCall::BindAndSend() {
  for (const LocalGpuRegionPtr& region : held_) {
    const auto known = what_.regions->Bind(what_.session, region, what_.deadline);
    if (!known.ok()) return Complete(known.status());
  }
  Send();
}

void GpuCall::Send() {
  max_runs_ = max_timeout_ms_ = UINT32_MAX;
  for (auto& [id, each] : regions_) {
    // As it is registered, Bind returns at once, unless its owner went away.
    const auto known = what_.regions->Bind(what_.session, each.region, what_.deadline);
    if (!known.ok()) return Complete(known.status());
    each.known = *known;
    max_runs_ = std::min(max_runs_, known->max_runs);
    if (known->max_timeout_ms > 0) {
      max_timeout_ms_ = std::min(max_timeout_ms_, known->max_timeout_ms);
    }
    daemon_ = known->daemon;
  }
  for (const Item& item : items_) {
    if (item.runs->size() <= max_runs_) continue;
    return Complete(
        absl::InvalidArgumentError(absl::StrCat("chunks[", item.index, "]: ", item.runs->size(),
                                                " runs; the daemon takes at most ", max_runs_)));
  }
  const std::vector<Items> groups = Groups();
  if (groups.empty()) return Complete(absl::OkStatus());
  {
    MutexLock lock(&mu_);
    under_way_ = groups.size();
  }
  for (const Items group : groups) SendGroup(group);
}

std::vector<GpuCall::Items> GpuCall::Groups() const {
  const size_t max_chunks = std::max<size_t>(1, what_.session->welcome().max_put_chunks);
  std::vector<Items> groups;
  size_t first = 0, runs = 0, bytes = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    const size_t more_runs = items_[i].runs->size();
    const size_t more = items_[i].wire_bytes + more_runs * sizeof(local::GpuMemoryRun);
    const bool full = i - first == max_chunks || runs + more_runs > max_runs_ ||
                      bytes + more > kMaxBodyBytes || items_[i].lease != items_[first].lease;
    if (i > first && full) {
      groups.push_back(Items(items_).subspan(first, i - first));
      first = i;
      runs = bytes = 0;
    }
    runs += more_runs;
    bytes += more;
  }
  if (first < items_.size()) groups.push_back(Items(items_).subspan(first));
  return groups;
}

LocalSession::Time::duration GpuCall::TimeGiven() const {
  const auto left = std::chrono::floor<milliseconds>(what_.deadline - steady_clock::now());
  const auto given = left - std::min(left / 4, kMostMargin);
  return std::clamp(given, milliseconds(1), milliseconds(max_timeout_ms_));
}

void GpuCall::SendGroup(Items items) {
  const uint64_t id = what_.session->NextId();
  const auto given = TimeGiven();
  Body body = {.ns = what_.ns,
               .items = items,
               .timeout_ms = static_cast<uint32_t>(given / milliseconds(1))};
  Kind kind = kind_;
  if (kind_ == Kind::kPutFromGpu) {
    body.until_ns =
        what_.session->DeadlineNs(std::min(steady_clock::now() + given, what_.deadline));
    if (body.until_ns > 0) kind = Kind::kPutFromGpuUntil;
    // The time left is less than the doubt about the daemon's clock.
    if (body.until_ns == 0 && has_reused()) {
      return Ended(absl::DeadlineExceededError("gpu: no time left for this put"));
    }
  }
  for (const Item& item : items) {
    for (const GpuRun& run : *item.runs) {
      if (run.region == GpuRegionId()) {
        body.runs.push_back({.registration = local::kSkippedBytes,
                             .bytes = static_cast<uint32_t>(run.bytes)});
        continue;
      }
      const GpuBinding& known = regions_.at(run.region).known;
      body.runs.push_back({.registration = known.registration,
                           .bytes = static_cast<uint32_t>(run.bytes),
                           .offset = run.offset,
                           .generation = known.generation});
    }
  }
  local::MessageWriter writer(static_cast<uint16_t>(kind), id);
  Write(body, &writer);
  auto hold = std::make_shared<GpuHold>(daemon_, held_, what_.use);
  LocalSession::Call call{.kind = kind,
                          .deadline = what_.deadline,
                          .done = nullptr,
                          .late = nullptr,
                          .copied = nullptr};
  call.done = [self = shared_from_this(), hold,
               items](absl::StatusOr<LocalSession::Reply> reply) mutable {
    if (!reply.ok() && !hold->answered()) self->what_.regions->CountUnanswered();
    hold.reset();
    const absl::Status read = reply.ok() ? self->Read(*reply, items) : reply.status();
    const absl::Status broken = reply.ok() ? ProtocolStatus(read) : absl::OkStatus();
    self->Ended(read);
    return broken;
  };
  call.copied = [hold = std::move(hold)] { hold->Answered(); };
  what_.session->Send(id, writer, std::move(call));
  TestPoint("gpu-sent");
}

void GpuCall::Ended(const absl::Status& status) {
  absl::Status error;
  {
    MutexLock lock(&mu_);
    error_.Update(status);
    KVKEEP_CHECK(under_way_ > 0);
    if (--under_way_ > 0) return;
    error = error_;
  }
  Complete(std::move(error));
}

}  // namespace kvkeep::client
