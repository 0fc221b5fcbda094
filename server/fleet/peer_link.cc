#include "server/fleet/peer_link.h"

#include <absl/strings/escaping.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/http2_settings.h"
#include "server/access/callers.h"
#include "server/fleet/fetch_call.h"
#include "server/fleet/peer_wire.h"
#include "server/fleet/unary_call.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr size_t kMostReasonBytes = 200;

// Returns words of another node in a form that is safe on terminals, cut to kMostReasonBytes.
std::string Printable(absl::string_view words) {
  return absl::CHexEscape(words.substr(0, kMostReasonBytes));
}

}  // namespace

PeerLink::PeerLink(const PeerLinkOptions& options, const Parts& parts)
    : options_(options),
      parts_(parts),
      used_(parts.clock->Now()),
      may_read_(options.most_reads),
      retry_after_(options.retry_first) {
  KVKEEP_CHECK(options.most_reads > 0);
  told_.name = options.name;
  told_.address = options.address;
}

PeerLink::~PeerLink() {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(calls_.empty());
}

std::shared_ptr<grpc::Channel> PeerLink::MakeChannel() const {
  const std::shared_ptr<const TlsIdentity::Material> now = parts_.identity->current();
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(options_.name);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMaxFetchFrameBytes + 64 * 1024));
  SetHttp2(Http2Link::kNetwork, &arguments);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // The link decides when to connect again; a channel is used for one connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(options_.address,
                                   grpc::SslCredentials({.pem_root_certs = now->client_ca,
                                                         .pem_private_key = now->key,
                                                         .pem_cert_chain = now->cert_chain}),
                                   arguments);
}

// ---- calls

bool PeerLink::reachable() const {
  MutexLock lock(&mu_);
  return state_ == State::kUp;
}

bool PeerLink::busy() const {
  MutexLock lock(&mu_);
  return !calls_.empty() || !waiting_.empty();
}

std::optional<PeerLink::Begun> PeerLink::BeginCall(MonotonicTime deadline, const CallKind& kind) {
  auto context = std::make_shared<grpc::ClientContext>();
  const MonotonicTime now = parts_.clock->Now();
  const auto left = std::clamp<std::chrono::nanoseconds>(
      deadline - now, std::chrono::nanoseconds(0), std::chrono::hours(1));
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
  MutexLock lock(&mu_);
  if (state_ != State::kUp) return std::nullopt;
  if (kind.is_use) WakeUp(now);
  const CallNumber number = ++last_call_;
  calls_[number] = {.context = context, .heard = kind.watched ? now : MonotonicTime(0)};
  return Begun{number, channel_, std::move(context), deadline};
}

void PeerLink::NoteHeard(CallNumber number) {
  const MonotonicTime now = parts_.clock->Now();
  MutexLock lock(&mu_);
  const auto call = calls_.find(number);
  if (call != calls_.end()) call->second.heard = now;
  heard_ = now;
}

void PeerLink::EndCall(CallNumber number) {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(calls_.erase(number) == 1);
}

void PeerLink::Count(uint64_t PeerLinkSnapshot::*counter) {
  MutexLock lock(&mu_);
  ++(told_.*counter);
}

PeerLinkSnapshot PeerLink::snapshot() const {
  MutexLock lock(&mu_);
  PeerLinkSnapshot snapshot = told_;
  snapshot.up = state_ == State::kUp;
  snapshot.waiting = waiting_.size();
  if (snapshot.up) snapshot.why.clear();
  return snapshot;
}

void PeerLink::NoteOutcome(const std::shared_ptr<grpc::Channel>& channel,
                           const absl::Status& status) {
  // A node that drains answers so, too; its Hello tells when it serves again.
  if (absl::IsUnavailable(status)) GoDown(channel, std::string(status.message()));
  if (!absl::IsPermissionDenied(status)) return;
  MutexLock lock(&mu_);
  ++told_.refusals;
  told_.refusal = Printable(status.message());
}

void PeerLink::WakeUp(MonotonicTime now) {
  used_ = now;
  next_hello_ = std::min(next_hello_, now + options_.hello_every);
}

void PeerLink::Find(std::vector<ChunkId> ids, MonotonicTime deadline,
                    std::function<void(absl::StatusOr<Found>)> done) {
  KVKEEP_CHECK(!ids.empty());
  std::optional<Begun> begun;
  if (ids.size() <= kMostChunksAFind) begun = BeginCall(deadline, {});
  if (!begun.has_value()) {
    parts_.executor->Post(
        [done = std::move(done)] { done(absl::UnavailableError("the peer is not reachable")); });
    return;
  }
  Count(&PeerLinkSnapshot::finds);
  using Finding = UnaryCall<v1::FindRequest, v1::FindResponse>;
  const auto call = std::make_shared<Finding>();
  call->request = ToFindRequest(ids);
  call->stub = v1::Peer::NewStub(begun->channel);
  call->stub->async()->Find(begun->context.get(), &call->request, &call->response,
                            [self = shared_from_this(), begun = *begun, call, asked = ids.size(),
                             done = std::move(done)](const grpc::Status& ended) {
                              absl::Status status = FromPeer(ended);
                              absl::StatusOr<Found> found =
                                  status.ok() ? ParseFindResponse(call->response, asked)
                                              : absl::StatusOr<Found>(status);
                              if (!found.ok()) self->Count(&PeerLinkSnapshot::failed_finds);
                              self->NoteOutcome(begun.channel, status);
                              done(std::move(found));
                              self->EndCall(begun.number);
                            });
}

void PeerLink::Read(PeerRead read) {
  const MonotonicTime until =
      std::min(read.request.deadline, parts_.clock->Now() + options_.read_within);
  bool up = false;
  {
    MutexLock lock(&mu_);
    up = state_ == State::kUp;
    if (up) {
      ++told_.reads;
      waiting_.push_back({std::move(read), until});
    }
  }
  up ? StartReads() : Refuse(std::move(read.request), "the peer is not reachable");
}

void PeerLink::StartReads() {
  while (true) {
    std::optional<Waiting> next;
    {
      MutexLock lock(&mu_);
      if (state_ != State::kUp || waiting_.empty() || reading_ >= may_read_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
      ++reading_;
    }
    std::optional<Begun> begun = BeginCall(next->until, {.watched = true});
    if (!begun.has_value()) {
      {
        MutexLock lock(&mu_);
        --reading_;
      }
      return Refuse(std::move(next->read.request), "the peer is not reachable");
    }
    FetchCall::Start(shared_from_this(), *std::move(begun), std::move(next->read));
  }
}

bool PeerLink::EndFetch(const Begun& begun, const PeerRead& read, bool untold, absl::Status* status,
                        uint64_t bytes) {
  bool again = false;
  {
    MutexLock lock(&mu_);
    KVKEEP_CHECK(reading_ > 0);
    --reading_;
    told_.read_bytes += bytes;
    if (!status->ok() && calls_.at(begun.number).given_up) {
      *status = absl::AbortedError("the peer sent nothing of the image any more");
    }
    again = untold && read.waits_if_busy && absl::IsResourceExhausted(*status) && reading_ > 0 &&
            state_ == State::kUp;
    if (again) {
      may_read_ = reading_;
      waiting_.push_front({read, begun.until});
    } else if (status->ok()) {
      may_read_ = std::min(may_read_ + 1, options_.most_reads);
    } else {
      ++told_.failed_reads;
    }
  }
  NoteOutcome(begun.channel, *status);
  return again;
}

void PeerLink::Refuse(RemoteSource::ReadRequest request, const char* why) {
  parts_.executor->Post(
      [request = std::move(request), why] { request.Fail(absl::UnavailableError(why)); });
}

// ---- up and down

void PeerLink::Tick() {
  const MonotonicTime now = parts_.clock->Now();
  std::shared_ptr<grpc::Channel> stalled;
  std::vector<std::shared_ptr<grpc::ClientContext>> given_up;
  bool greet = false;
  std::vector<RemoteSource::ReadRequest> late;
  {
    MutexLock lock(&mu_);
    for (auto& [number, call] : calls_) {
      const bool stalls = call.heard > MonotonicTime(0) && now - call.heard > options_.stall;
      if (!stalls || state_ != State::kUp || call.given_up) continue;
      if (now - heard_ > options_.stall) {
        stalled = channel_;
      } else {
        call.given_up = true;
        given_up.push_back(call.context);
      }
    }
    greet = state_ != State::kStopped && !greets_ && now >= next_hello_;
    for (Waiting& one : waiting_) {
      if (one.until <= now) late.push_back(std::move(one.read.request));
    }
    std::erase_if(waiting_, [now](const Waiting& one) { return one.until <= now; });
  }
  for (auto& request : late) Refuse(std::move(request), "the peer had no time for the read");
  for (const auto& context : given_up) context->TryCancel();
  if (stalled != nullptr) return GoDown(stalled, "it sends nothing any more");
  if (greet) Greet();
  AskSummary();
}

void PeerLink::GreetSoon() {
  MutexLock lock(&mu_);
  if (state_ != State::kDown) return;
  next_hello_ = parts_.clock->Now();
  retry_after_ = options_.retry_first;
}

void PeerLink::Greet() {
  auto context = std::make_shared<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + options_.hello_within);
  std::shared_ptr<grpc::Channel> channel;
  CallNumber number = 0;
  {
    MutexLock lock(&mu_);
    if (state_ == State::kStopped) return;
    if (state_ != State::kUp) {
      channel_ = MakeChannel();
    }
    channel = channel_;
    greets_ = true;
    number = ++last_call_;
    calls_[number] = {.context = context};
  }
  using Greeting = UnaryCall<v1::PeerHelloRequest, v1::PeerHelloResponse>;
  const auto call = std::make_shared<Greeting>();
  call->request.set_min_version(kPeerVersionMin);
  call->request.set_max_version(kPeerVersionMax);
  call->request.set_fleet(std::string(options_.fleet.view()));
  call->stub = v1::Peer::NewStub(channel);
  call->stub->async()->Hello(
      context.get(), &call->request, &call->response,
      [self = shared_from_this(), channel, number, call, context](const grpc::Status& ended) {
        absl::Status status = FromPeer(ended);
        // gRPC checks the certificate in the handshake alone, and knows no CRL.
        if (status.ok())
          status = CheckTls(*context->auth_context(), self->parts_.certificates.get());
        self->OnHello(channel, number, status, call->response);
      });
}

void PeerLink::OnHello(const std::shared_ptr<grpc::Channel>& channel, CallNumber number,
                       const absl::Status& status, const v1::PeerHelloResponse& response) {
  absl::Status well = status;
  if (well.ok() && (response.version() < kPeerVersionMin || response.version() > kPeerVersionMax)) {
    well = absl::FailedPreconditionError("the peer chose a version that nobody offered");
  }
  {
    MutexLock lock(&mu_);
    greets_ = false;
    if (well.ok() && channel == channel_ && state_ != State::kStopped) {
      state_ = State::kUp;
      if (told_.incarnation != response.incarnation()) summary_.Forget();
      told_.incarnation = response.incarnation();
      heard_ = parts_.clock->Now();
      retry_after_ = options_.retry_first;
      const bool rests = heard_ - used_ > options_.rests_after;
      next_hello_ = heard_ + (rests ? options_.hello_at_rest : options_.hello_every);
    }
  }
  if (!well.ok()) GoDown(channel, std::string(well.message()));
  EndCall(number);
}

void PeerLink::GoDown(const std::shared_ptr<grpc::Channel>& channel, std::string why) {
  Work ended;
  {
    MutexLock lock(&mu_);
    // Late news of an earlier connection.
    if (channel != channel_ || state_ == State::kStopped) return;
    if (state_ == State::kUp) ++told_.downs;
    state_ = State::kDown;
    told_.why = Printable(why);
    // Some jitter, so that a fleet does not greet a node that came back at the same time.
    const uint64_t most = static_cast<uint64_t>(retry_after_.count());
    next_hello_ = parts_.clock->Now() +
                  std::chrono::milliseconds(most / 2 + parts_.random->NextU64() % (most / 2 + 1));
    retry_after_ = std::min(2 * retry_after_, options_.retry_last);
    ended = TakeWork();
  }
  End(std::move(ended), "the peer is not reachable any more");
}

void PeerLink::Stop() {
  Work ended;
  {
    MutexLock lock(&mu_);
    state_ = State::kStopped;
    ended = TakeWork();
  }
  End(std::move(ended), "the node stops");
}

PeerLink::Work PeerLink::TakeWork() {
  Work work{.channel = std::move(channel_), .waiting = std::exchange(waiting_, {})};
  for (const auto& [number, call] : calls_) work.calls.push_back(call.context);
  return work;
}

void PeerLink::End(Work work, const char* why) {
  for (const auto& context : work.calls) context->TryCancel();
  for (Waiting& one : work.waiting) Refuse(std::move(one.read.request), why);
}

}  // namespace kvkeep
