#include "client/watch.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "client/grpc/connection.h"
#include "client/grpc/grpc_client.h"
#include "client/grpc/session_stream.h"
#include "client/grpc/tls_probe.h"
#include "client/grpc/watch_call.h"
#include "client/transport/backoff.h"
#include "client/transport/transport.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using std::chrono::steady_clock;

// Returns whether the error is a running daemon's answer, which will be the same the next time.
bool IsAnswer(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status) ||
         absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status) ||
         absl::IsUnimplemented(status);
}

// Returns false for a change that this client does not know.
bool FillChange(v1::ChunkChange change, WatchEvent& event) {
  switch (change) {
    case v1::CHUNK_CHANGE_G2_STORED:
    case v1::CHUNK_CHANGE_G2_REMOVED:
      event.tier = Tier::kG2;
      break;
    case v1::CHUNK_CHANGE_G3_STORED:
    case v1::CHUNK_CHANGE_G3_REMOVED:
      event.tier = Tier::kG3;
      break;
    default:
      return false;
  }
  event.stored = change == v1::CHUNK_CHANGE_G2_STORED || change == v1::CHUNK_CHANGE_G3_STORED;
  return true;
}

// INTERNAL: the message breaks the protocol.
absl::StatusOr<WatchNews> FromWire(const v1::WatchEvents& message, uint64_t sequence) {
  const auto count = static_cast<size_t>(message.changes_size());
  if (message.keys().size() != count * ChunkKey::kSize ||
      static_cast<size_t>(message.parts_size()) != count) {
    return absl::InternalError(absl::StrCat("Watch: ", count, " changes with ",
                                            message.keys().size(), " bytes of keys and ",
                                            message.parts_size(), " parts"));
  }
  if (message.sequence() != sequence) {
    return absl::InternalError(
        absl::StrCat("Watch: event ", message.sequence(), " came, ", sequence, " was to come"));
  }
  WatchNews news{.snapshot_end = message.snapshot_end(),
                 .epoch = message.epoch(),
                 .sequence = message.sequence()};
  news.events.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    WatchEvent event{.part = message.parts(static_cast<int>(i))};
    std::copy_n(message.keys().begin() + static_cast<ptrdiff_t>(i * ChunkKey::kSize),
                ChunkKey::kSize, event.key.bytes.begin());
    if (FillChange(message.changes(static_cast<int>(i)), event)) news.events.push_back(event);
  }
  return news;
}

}  // namespace

absl::string_view WatchBeginName(WatchBegin begin) {
  switch (begin) {
    case WatchBegin::kNo:
      return "no";
    case WatchBegin::kFirst:
      return "first";
    case WatchBegin::kReconnected:
      return "reconnected";
    case WatchBegin::kNewDaemon:
      return "new_daemon";
    case WatchBegin::kMissed:
      return "missed";
  }
  return "unknown";
}

absl::StatusOr<std::unique_ptr<Watch>> Watch::Open(WatchOptions options) {
  if (options.client.path == PathChoice::kLocal) {
    return absl::InvalidArgumentError("path: the local path has no watch; auto or grpc");
  }
  KVKEEP_RETURN_IF_ERROR(options.client.Validate());
  if (!HostOf(options.client.endpoint).empty()) {
    KVKEEP_RETURN_IF_ERROR(LoadSecurity(options.client.security).status());
  }
  std::unique_ptr<Watch> watch(new Watch(std::move(options)));
  watch->thread_ = std::thread([raw = watch.get()] { raw->Run(); });
  return watch;
}

Watch::~Watch() {
  Cancel();
  thread_.join();
}

absl::StatusOr<WatchNews> Watch::Next(Deadline timeout) {
  const auto give_up = steady_clock::now() + timeout;
  MutexLock lock(&mu_);
  while (true) {
    if (stopping_) return absl::CancelledError("the watch was cancelled");
    if (news_.has_value()) {
      WatchNews news = *std::exchange(news_, std::nullopt);
      stats_.events += news.events.size();
      changed_.NotifyAll();
      return news;
    }
    if (!untold_.ok()) {
      changed_.NotifyAll();
      return std::exchange(untold_, absl::OkStatus());
    }
    const auto left = give_up - steady_clock::now();
    if (left.count() <= 0) {
      return watching_ ? absl::DeadlineExceededError("nothing has changed") : away_;
    }
    changed_.WaitFor(&mu_, left);
  }
}

void Watch::Cancel() {
  MutexLock lock(&mu_);
  stopping_ = true;
  if (call_ != nullptr) call_->TryCancel();
  changed_.NotifyAll();
}

Watch::Stats Watch::GetStats() const {
  MutexLock lock(&mu_);
  return stats_;
}

// ---------------------------------------------------------------- the thread

void Watch::Run() {
  Backoff backoff(options_.client.backoff_min, options_.client.backoff_max);
  while (true) {
    const auto began = steady_clock::now();
    GoneAway(RunSession());
    const auto retry_at = steady_clock::now() + backoff.After(steady_clock::now() - began);
    MutexLock lock(&mu_);
    while (!stopping_ && steady_clock::now() < retry_at) {
      changed_.WaitFor(&mu_, retry_at - steady_clock::now());
    }
    if (stopping_) return;
  }
}

void Watch::GoneAway(const absl::Status& why) {
  const bool answer = IsAnswer(why);
  MutexLock lock(&mu_);
  watching_ = false;
  away_ = answer ? why : AwayError(options_.client.endpoint, why);
  if (answer || !away_told_) untold_ = away_;
  away_told_ = true;
  changed_.NotifyAll();
}

absl::Status Watch::RunSession() {
  const ClientOptions& options = options_.client;
  KVKEEP_ASSIGN_OR_RETURN(
      const std::unique_ptr<Connection> connection,
      Connection::Open(options.endpoint, options.security, options.peer_timeout));
  const std::unique_ptr<v1::KvCache::Stub> stub = v1::KvCache::NewStub(connection->channel());
  SessionStream session([this] {
    MutexLock lock(&mu_);
    changed_.NotifyAll();
  });
  session.Start(stub.get(), options.client_name, connection->authorization());
  absl::Status status = AwaitOpen(session);
  if (status.ok()) {
    v1::WatchRequest request;
    request.set_session_token(session.token());
    absl::StatusOr<std::string> digest =
        OpenNamespace(stub.get(), session.token(), connection->authorization());
    status = digest.status();
    if (digest.ok()) {
      request.set_namespace_digest(*std::move(digest));
      status = ReadAll(stub.get(), request, connection->authorization());
    }
  }
  session.Cancel();
  connection->Break();
  (void)session.WaitDone();  // cancelled by us, or ended for the reason in `status`
  return ExplainedByTls(std::move(status), options.endpoint, options.security,
                        options.default_deadline);
}

absl::Status Watch::AwaitOpen(const SessionStream& session) {
  const auto give_up = steady_clock::now() + options_.client.default_deadline;
  MutexLock lock(&mu_);
  while (!session.opened() && !session.done()) {
    if (stopping_) return absl::CancelledError("stopping");
    if (steady_clock::now() >= give_up) {
      return absl::UnavailableError("no answer to OpenSession by the deadline");
    }
    changed_.WaitFor(&mu_, give_up - steady_clock::now());
  }
  return session.opened() ? absl::OkStatus() : session.status();
}

bool Watch::Begin(grpc::ClientContext* context, const std::string& authorization) {
  if (!authorization.empty()) context->AddMetadata("authorization", authorization);
  MutexLock lock(&mu_);
  if (!stopping_) call_ = context;
  return !stopping_;
}

void Watch::End() {
  MutexLock lock(&mu_);
  call_ = nullptr;
}

absl::StatusOr<std::string> Watch::OpenNamespace(v1::KvCache::Stub* stub, const std::string& token,
                                                 const std::string& authorization) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + options_.client.default_deadline);
  if (!Begin(&context, authorization)) return absl::CancelledError("stopping");
  v1::OpenNamespaceResponse response;
  const grpc::Status status = stub->OpenNamespace(&context, ToWire(options_.ns, token), &response);
  End();
  if (!status.ok()) return FromGrpc(status);
  return response.namespace_digest();
}

absl::Status Watch::ReadAll(v1::KvCache::Stub* stub, const v1::WatchRequest& request,
                            const std::string& authorization) {
  grpc::ClientContext context;
  if (!Begin(&context, authorization)) return absl::CancelledError("stopping");
  WatchCall call(stub, &context, &request);
  v1::WatchEvents message;
  uint64_t sequence = 0;
  bool first = true, left = false;  // left: this side ends the call
  absl::Status broken;
  // The daemon sends the first message at once, the others when something changes.
  auto limit = steady_clock::now() + options_.client.default_deadline;
  WatchCall::Read read;
  while ((read = call.Next(&message, limit)) == WatchCall::Read::kMessage) {
    absl::StatusOr<WatchNews> news = FromWire(message, sequence);
    broken = news.status();
    if (first && broken.ok() && !message.gap()) {
      broken = absl::InternalError("Watch: the first message is no beginning");
    }
    left = !broken.ok();
    if (left) break;
    if (message.gap()) news->begins = WhyAnew(message.epoch(), first);
    epoch_ = message.epoch();
    sequence += static_cast<uint64_t>(message.changes_size());
    first = false;
    limit = steady_clock::time_point::max();
    left = !HandOver(*std::move(news));
    if (left) break;
  }
  if (!broken.ok()) {
    MutexLock lock(&mu_);
    ++stats_.broken_streams;
  }
  if (left) context.TryCancel();  // only then, or the daemon's reason would be lost
  const grpc::Status status = call.Finish();
  End();
  if (!broken.ok()) return broken;
  if (read == WatchCall::Read::kLate) {
    return absl::UnavailableError("no first message of the watch by the deadline");
  }
  return status.ok() ? absl::UnavailableError("the daemon ended the watch") : FromGrpc(status);
}

WatchBegin Watch::WhyAnew(uint64_t epoch, bool first_message) const {
  if (!first_message) return WatchBegin::kMissed;
  if (epoch_ == 0) return WatchBegin::kFirst;
  return epoch == epoch_ ? WatchBegin::kReconnected : WatchBegin::kNewDaemon;
}

bool Watch::HandOver(WatchNews news) {
  MutexLock lock(&mu_);
  while (!stopping_ && (news_.has_value() || !untold_.ok())) changed_.Wait(&mu_);
  if (stopping_) return false;
  if (news.begins != WatchBegin::kNo) ++stats_.begins;
  if (!watching_) {
    ++stats_.connects;
    watching_ = true;
    away_told_ = false;
  }
  news_ = std::move(news);
  changed_.NotifyAll();
  return true;
}

}  // namespace kvkeep::client
