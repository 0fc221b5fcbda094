#include "client/router.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "client/grpc/grpc_transport.h"
#include "client/local/local_transport.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using std::chrono::steady_clock;

// How long a client that can use gRPC waits for the local path. A daemon that listens answers the
// handshake at once.
constexpr Deadline kFirstLocalTry{1'000};
constexpr Deadline kLookForPathEvery{10};

// Returns whether nobody listens, or we may not connect: unlike for a daemon that restarts, waiting
// does not help.
bool AbsentOrRefused(const absl::Status& why) {
  return absl::IsNotFound(why) || absl::IsPermissionDenied(why) || absl::IsUnimplemented(why);
}

ClientStats Sum(const ClientStats& a, const ClientStats& b) {
  return {.sessions_opened = a.sessions_opened + b.sessions_opened,
          .calls = a.calls + b.calls,
          .failed_fast = a.failed_fast + b.failed_fast,
          .corrupt_chunks = a.corrupt_chunks + b.corrupt_chunks,
          .bytes_received = a.bytes_received + b.bytes_received,
          .bytes_sent = a.bytes_sent + b.bytes_sent,
          .late_slices = a.late_slices + b.late_slices,
          .sessions_torn_down = a.sessions_torn_down + b.sessions_torn_down,
          .bulk_fallbacks = a.bulk_fallbacks + b.bulk_fallbacks,
          .leases_reclaimed = a.leases_reclaimed + b.leases_reclaimed};
}

}  // namespace

Router::Router(ClientOptions options)
    : options_(std::move(options)),
      local_socket_(options_.path == PathChoice::kGrpc ? "" : LocalSocketOf(options_)) {
  const auto until = steady_clock::now() + options_.default_deadline;
  if (!local_socket_.empty()) {
    local_ = std::make_unique<LocalTransport>(
        LocalTransport::Options{.socket = local_socket_,
                                .client_name = options_.client_name,
                                .default_deadline = options_.default_deadline,
                                .backoff_min = options_.backoff_min,
                                .backoff_max = options_.backoff_max,
                                .busy_poll = options_.busy_poll});
    const bool only = options_.path == PathChoice::kLocal;
    const Deadline patience =
        only ? options_.default_deadline : std::min(options_.default_deadline / 2, kFirstLocalTry);
    if (local_->WaitFirstAttempt(patience).ok() || only) return;
  }
  const auto left = std::chrono::ceil<Deadline>(until - steady_clock::now());
  (void)MakeGrpc()->WaitFirstAttempt(std::max(left, Deadline(0)));
}

Router::~Router() {
  // In a child of fork() its thread does not exist and its locks may be held, so it is leaked.
  if (local_ != nullptr && local_->forked()) (void)local_.release();
}

bool Router::LocalUsable() const {
  return local_ != nullptr && (local_->forked() || local_->WaitConnected(Deadline(0)));
}

Transport* Router::grpc() const {
  MutexLock lock(&mu_);
  return grpc_.get();
}

Transport* Router::MakeGrpc() {
  std::vector<std::shared_ptr<NamespaceState>> namespaces;
  Transport* made;
  {
    MutexLock lock(&mu_);
    if (grpc_ != nullptr) return grpc_.get();
    grpc_ = std::make_unique<GrpcTransport>(options_);
    made = grpc_.get();
    namespaces = namespaces_;
  }
  for (const auto& ns : namespaces) (void)Bind(ns, made);
  return made;
}

Transport* Router::Pick() {
  if (LocalUsable()) return local_.get();
  if (Transport* made = grpc(); made != nullptr) return made;
  if (options_.path == PathChoice::kLocal || !AbsentOrRefused(local_->why_away())) {
    return local_.get();
  }
  return MakeGrpc();
}

Transport* Router::PickForLocal() {
  Transport* const picked = Pick();
  if (local_ == nullptr || picked == local_.get()) return picked;
  const absl::Status away = local_->why_away();
  // No socket: the daemon has none, is not running, or is just starting.
  const bool gone = absl::IsNotFound(away) && (local_->stats().sessions_opened > 0 ||
                                               !picked->WaitConnected(Deadline(0)));
  return gone || !AbsentOrRefused(away) ? local_.get() : picked;
}

Transport* Router::Of(Path path) {
  if (path == Path::kLocal) return local_.get();
  return grpc();
}

PathInfo Router::path() {
  if (LocalUsable()) return {Path::kLocal, absl::StrCat("local: ", local_socket_)};
  const absl::Status away = local_ == nullptr ? absl::OkStatus() : local_->why_away();
  if (options_.path == PathChoice::kLocal || (local_ != nullptr && grpc() == nullptr)) {
    return {Path::kLocal, absl::StrCat("local: ", local_socket_, " is away: ", away.ToString())};
  }
  std::string why = "grpc: asked for";
  if (options_.path != PathChoice::kGrpc) {
    if (local_ == nullptr) {
      why = "grpc: the endpoint is TCP";
    } else if (absl::IsNotFound(away)) {
      why = absl::StrCat("grpc: no local socket at ", local_socket_);
    } else if (absl::IsPermissionDenied(away)) {
      why = absl::StrCat("grpc: local path refused: ", away.ToString());
    } else {
      why = absl::StrCat("grpc: local path not there: ", away.ToString());
    }
  }
  return {Path::kGrpc, why};
}

bool Router::WaitConnected(Deadline timeout) {
  const auto give_up = steady_clock::now() + timeout;
  while (true) {
    Transport* const picked = Pick();
    const auto left = std::chrono::duration_cast<Deadline>(give_up - steady_clock::now());
    // In short steps, as either of the two may come back.
    if (picked->WaitConnected(std::clamp(left, Deadline(0), kLookForPathEvery))) return true;
    if (left <= Deadline(0)) return false;
  }
}

ClientStats Router::stats() {
  ClientStats stats;
  if (local_ != nullptr) stats = local_->stats();
  Transport* const made = grpc();
  return made == nullptr ? stats : Sum(stats, made->stats());
}

absl::StatusOr<std::shared_ptr<NamespaceState>> Router::OpenNamespace(const NamespaceSpec& spec,
                                                                      Deadline deadline) {
  std::shared_ptr<NamespaceState> state;
  {
    MutexLock lock(&mu_);
    for (const auto& known : namespaces_) {
      if (known->spec == spec) state = known;
    }
  }
  const bool fresh = state == nullptr;
  if (fresh) {
    state = std::make_shared<NamespaceState>();
    state->spec = spec;
    state->owner = this;
  }
  Transport* const picked = Pick();
  for (Transport* transport : {static_cast<Transport*>(local_.get()), grpc()}) {
    if (transport == nullptr) continue;
    auto binding = transport->OpenNamespace(spec, deadline);
    if (!binding.ok()) {
      if (transport == picked) return binding.status();
      continue;
    }
    MutexLock lock(&state->mu);
    state->bindings[static_cast<size_t>(path_of(transport))] = *std::move(binding);
  }
  if (fresh) {
    MutexLock lock(&mu_);
    for (const auto& known : namespaces_) {
      if (known->spec == spec) return known;  // another thread was faster
    }
    namespaces_.push_back(state);
  }
  return state;
}

absl::StatusOr<std::shared_ptr<NamespaceBinding>> Router::Bind(
    const std::shared_ptr<NamespaceState>& ns, Transport* transport) {
  if (ns == nullptr) return absl::InvalidArgumentError("namespace: not opened");
  if (ns->owner != this) {
    return absl::InvalidArgumentError("namespace: was opened with another client");
  }
  const size_t which = static_cast<size_t>(path_of(transport));
  {
    MutexLock lock(&ns->mu);
    if (ns->bindings[which] != nullptr) return ns->bindings[which];
  }
  KVKEEP_ASSIGN_OR_RETURN(std::shared_ptr<NamespaceBinding> binding,
                          transport->OpenNamespace(ns->spec, options_.default_deadline));
  MutexLock lock(&ns->mu);
  ns->bindings[which] = binding;
  return binding;
}

Path Router::path_of(const Transport* transport) const {
  return transport == local_.get() ? Path::kLocal : Path::kGrpc;
}

}  // namespace kvkeep::client
