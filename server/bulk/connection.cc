#include "server/bulk/connection.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "kvkeep/v1/bulk.pb.h"
#include "server/bulk/message_share.h"
#include "server/requests/check_session.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/utf8.h"

namespace kvkeep {
namespace {

constexpr size_t kBufferBytes = 4 * kKiB;
constexpr size_t kFramesAhead = 2;          // of a get, being sent
constexpr uint64_t kWriteBytes = 2 * kMiB;  // at once
constexpr int kStepsAtOnce = 4;             // then other connections have their turn
constexpr size_t kMaxEndMessageBytes = 1024;

}  // namespace

BulkConnection::BulkConnection(Deps deps, uint64_t id, std::unique_ptr<ByteStream> stream,
                               std::unique_ptr<BulkCaller> caller)
    : deps_(std::move(deps)),
      id_(id),
      stream_(std::move(stream)),
      caller_(std::move(caller)),
      opened_(deps_.state->clock->Now()),
      buffer_(kBufferBytes),
      moved_(opened_) {}

BulkConnection::~BulkConnection() = default;

absl::Status BulkConnection::Start() {
  watched_ = EPOLLIN;
  return deps_.loop->Watch(stream_->fd(), id_, watched_);
}

void BulkConnection::OnEvent(uint32_t events) {
  const bool gone = (events & (EPOLLHUP | EPOLLERR)) != 0 ||
                    ((events & EPOLLRDHUP) != 0 && phase_ == Phase::kGetting);
  if (gone && !may_read()) {
    deps_.state->counters.cancelled_streams.fetch_add(1, std::memory_order_relaxed);
    return Close();
  }
  Run();
}

void BulkConnection::Run() {
  const std::shared_ptr<BulkConnection> self = shared_from_this();
  bool more = !closed();
  for (int step = 0; more && step < kStepsAtOnce; ++step) {
    more = ServeCall();
    more |= WriteSome();
    more |= ReadSome();
    more = more && !closed();
  }
  deps_.state->pins.Poke();  // for chunks that were sent
  if (closed()) return;
  Settle();
  if (more) RunLater();
}

void BulkConnection::RunLater() {
  deps_.loop->Post([weak = weak_from_this()] {
    const std::shared_ptr<BulkConnection> self = weak.lock();
    if (self != nullptr && !self->closed()) self->Run();
  });
}

bool BulkConnection::client_is_due() const {
  if (!out_.empty()) return true;
  if (phase_ == Phase::kPutting) return may_read() && results_.empty();
  return phase_ == Phase::kIdle && (head_.has_value() || filled_ > read_);
}

void BulkConnection::Settle() {
  if (phase_ == Phase::kIdle && ending_soon_ && out_.empty()) return Close();
  const bool due = client_is_due();
  if (due && !due_) moved_ = deps_.state->clock->Now();
  due_ = due;
  uint32_t events = phase_ == Phase::kGetting ? uint32_t{EPOLLRDHUP} : 0;
  if (may_read()) events |= stream_->read_needs();
  if (!out_.empty()) events |= stream_->write_needs();
  if (events == watched_) return;
  watched_ = events;
  deps_.loop->Change(stream_->fd(), id_, events);
}

void BulkConnection::OnTick(MonotonicTime now) {
  const std::chrono::milliseconds stall = deps_.state->stalls.limit();
  if (phase_ == Phase::kHello && now - opened_ > kHelloTimeout) return Close();
  if (deps_.max_age.count() > 0 && now - opened_ > deps_.max_age) EndSoon();
  if (closed()) return;
  if (phase_ == Phase::kEnding || phase_ == Phase::kLingering) {
    if (now - failed_ > kLinger) Close();
    return;
  }
  if (!due_ || now - moved_ < stall) return;
  deps_.state->counters.stalled_streams.fetch_add(1, std::memory_order_relaxed);
  if (!out_.empty()) return Close();
  Fail(absl::DeadlineExceededError(
      absl::StrCat("limits.stall_timeout: the client sent or took nothing for ", stall.count(),
                   " ms; a chunk in progress was not stored")));
  Run();
}

void BulkConnection::EndSoon() {
  ending_soon_ = true;
  const bool idle = phase_ == Phase::kHello || (phase_ == Phase::kIdle && out_.empty());
  if (idle) Close();
}

void BulkConnection::Close() {
  if (closed()) return;
  DropCall();
  out_.Clear();
  deps_.state->pins.Poke();
  deps_.loop->Forget(stream_->fd());
  phase_ = Phase::kClosed;
  deps_.on_closed(id_);
}

bool BulkConnection::WriteSome() {
  if (out_.empty()) return false;
  const ByteStream::Moved moved = out_.WriteTo(*stream_, kWriteBytes);
  if (moved.outcome == ByteStream::Outcome::kWait) return false;
  if (moved.outcome != ByteStream::Outcome::kMoved) {
    Close();
    return false;
  }
  moved_ = deps_.state->clock->Now();
  if (phase_ == Phase::kEnding && out_.empty()) {
    stream_->EndWriting();
    phase_ = Phase::kLingering;
  }
  return true;
}

bool BulkConnection::ServeCall() {
  bool done_something = false;
  while (phase_ == Phase::kGetting && out_.size() < kFramesAhead) {
    std::optional<GetFrames::Frame> frame = get_->Next();
    if (!frame.has_value()) {
      if (!get_->done()) break;
      EndCall(get_->error());
      return true;
    }
    out_.Add(*frame);
    done_something = true;
  }
  if (phase_ == Phase::kGetting && out_.size() == kFramesAhead) get_->Prepare();
  while (phase_ == Phase::kPutting && !results_.empty() && results_.front().ready) {
    out_.Add(bulk::FrameKind::kResult, results_.front().result);
    results_.pop_front();
    done_something = true;
  }
  if (phase_ == Phase::kPutting && put_done_ && results_.empty()) {
    EndCall(absl::OkStatus());
    done_something = true;
  }
  return done_something;
}

absl::Status BulkConnection::OnFrame() {
  absl::Status served;
  switch (head_->kind) {
    case bulk::FrameKind::kHello:
      served = Hello();
      break;
    case bulk::FrameKind::kGet:
      served = BeginGet();
      break;
    case bulk::FrameKind::kPut:
      served = OpenPut();
      break;
    default:
      put_done_ = true;
      break;
  }
  if (!in_payload_) head_.reset();
  message_.clear();
  message_.shrink_to_fit();
  return served;
}

absl::Status BulkConnection::Hello() {
  v1::BulkHello hello;
  if (!hello.ParseFromString(message_)) {
    return absl::InvalidArgumentError("BulkHello: not valid protobuf");
  }
  if (hello.min_version() > bulk::kVersion || hello.max_version() < bulk::kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("versions ", hello.min_version(), " to ", hello.max_version(),
                     ": this daemon speaks version ", bulk::kVersion));
  }
  authorization_ = hello.authorization();
  KVKEEP_RETURN_IF_ERROR(caller_->Admit(stream_->shown(), authorization_).status());
  v1::BulkWelcome welcome;
  welcome.set_version(bulk::kVersion);
  welcome.set_incarnation(deps_.store->incarnation().value());
  out_.Add(bulk::FrameKind::kWelcome, welcome);
  phase_ = Phase::kIdle;
  return absl::OkStatus();
}

absl::StatusOr<GetPlan> BulkConnection::PlanOf(const v1::GetRequest& request) {
  KVKEEP_ASSIGN_OR_RETURN(const TenantId tenant, caller_->Admit(stream_->shown(), authorization_));
  KVKEEP_ASSIGN_OR_RETURN(
      const SessionToken session,
      CheckSession(deps_.store, &deps_.state->counters, tenant, request.session_token()));
  return ToGetPlan(*deps_.store, session, request);
}

absl::Status BulkConnection::BeginGet() {
  call_began_ = deps_.state->clock->Now();
  call_keys_ = 0;
  deps_.state->counters.get_streams.fetch_add(1, std::memory_order_relaxed);
  phase_ = Phase::kGetting;
  v1::GetRequest request;
  if (!request.ParseFromString(message_)) {
    EndCall(absl::InvalidArgumentError("GetRequest: not valid protobuf"));
    return absl::OkStatus();
  }
  absl::StatusOr<GetPlan> plan = PlanOf(request);
  if (!plan.ok()) {
    EndCall(plan.status());
    return absl::OkStatus();
  }
  call_keys_ = plan->chunks.keys.size();
  get_ = GetFrames::Begin(
      {.store = deps_.store, .pins = &deps_.state->pins, .counters = &deps_.state->counters},
      *std::move(plan), [weak = weak_from_this()] {
        const std::shared_ptr<BulkConnection> self = weak.lock();
        if (self != nullptr) self->RunLater();
      });
  return absl::OkStatus();
}

absl::Status BulkConnection::OpenPut() {
  if (phase_ == Phase::kIdle) {
    call_began_ = deps_.state->clock->Now();
    call_keys_ = 0;
    deps_.state->counters.put_streams.fetch_add(1, std::memory_order_relaxed);
    phase_ = Phase::kPutting;
    put_done_ = false;
    KVKEEP_ASSIGN_OR_RETURN(const TenantId tenant,
                            caller_->Admit(stream_->shown(), authorization_));
    put_ = std::make_unique<BulkPut>(deps_.store, deps_.state, tenant);
  }
  v1::PutFrame frame;
  if (!frame.ParseFromString(message_)) {
    return absl::InvalidArgumentError("PutFrame: not valid protobuf");
  }
  ++call_keys_;
  in_payload_ = true;
  return put_->Open(std::move(frame), head_->payload_bytes);
}

absl::Status BulkConnection::EndOfPayload() {
  in_payload_ = false;
  head_.reset();
  KVKEEP_ASSIGN_OR_RETURN(PutIntake::FinishedChunk chunk, put_->Finish());
  const bool waits = chunk.put.awaits_durable();
  results_.push_back({.result = chunk.Result(), .ready = !waits});
  if (!waits) return absl::OkStatus();
  const ChunkId id = chunk.put.id();
  deps_.store->WhenDurable(id, [weak = weak_from_this(), loop = deps_.loop, call = call_,
                                chunk = std::move(chunk)](const absl::Status& status) mutable {
    chunk.put.OnDurable(status);
    loop->Post([weak, call, result = chunk.Result()] {
      const std::shared_ptr<BulkConnection> self = weak.lock();
      if (self != nullptr) self->OnDurable(call, result);
    });
  });
  return absl::OkStatus();
}

void BulkConnection::OnDurable(uint64_t call, const v1::PutResult& result) {
  if (call != call_ || phase_ != Phase::kPutting) return;
  for (Result& waiting : results_) {
    if (waiting.result.ordinal() != result.ordinal()) continue;
    waiting = {.result = result, .ready = true};
    break;
  }
  Run();
}

void BulkConnection::EndCall(absl::Status status) {
  NoteCall(status);
  DropCall();
  AddEnd(status);
  phase_ = Phase::kIdle;
}

void BulkConnection::AddEnd(const absl::Status& status) {
  v1::BulkEnd end;
  end.set_code(static_cast<uint32_t>(status.code()));
  const absl::string_view message = status.message().substr(0, kMaxEndMessageBytes);
  end.set_message(std::string(message.substr(0, Utf8Bytes(message))));
  out_.Add(bulk::FrameKind::kEnd, end);
}

void BulkConnection::Fail(const absl::Status& why) {
  if (phase_ == Phase::kEnding || phase_ == Phase::kLingering || closed()) return;
  if (phase_ == Phase::kPutting) NoteCall(why);
  DropCall();
  AddEnd(why);
  failed_ = deps_.state->clock->Now();
  phase_ = Phase::kEnding;
}

void BulkConnection::NoteCall(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    deps_.state->counters.invalid_requests.fetch_add(1, std::memory_order_relaxed);
  }
  const Operation operation = phase_ == Phase::kPutting ? Operation::kPut : Operation::kGet;
  deps_.state->times.Note({Listener::kBulk, operation, status.code()}, call_began_, [this] {
    return Requester{.peer = caller_->name(), .keys = call_keys_};
  });
}

void BulkConnection::DropCall() {
  ++call_;
  if (get_ != nullptr) get_->Drop();
  get_.reset();
  put_.reset();
  results_.clear();
  share_.reset();
  in_payload_ = false;
  head_.reset();
}

}  // namespace kvkeep
