#include "client/grpc/session_stream.h"

#include "client/grpc/grpc_client.h"
#include "tiers/base/check.h"

namespace kvkeep::client {

ServerLimits FromWire(const v1::Limits& limits) {
  return {.max_keys_per_call = limits.max_keys_per_call(),
          .max_parts_per_call = limits.max_parts_per_call(),
          .max_payload_bytes = limits.max_payload_bytes(),
          .max_metadata_bytes = limits.max_metadata_bytes(),
          .max_frame_bytes = limits.max_frame_bytes(),
          .max_leases_per_session = limits.max_leases_per_session(),
          .max_leased_bytes = limits.max_leased_bytes(),
          .max_sessions = limits.max_sessions()};
}

ServerInfo FromWire(const v1::GetServerInfoResponse& response) {
  ServerInfo info{.version = response.version(),
                  .incarnation = response.incarnation(),
                  .state = "unknown",
                  .limits = FromWire(response.limits()),
                  .features = {response.features().begin(), response.features().end()}};
  switch (response.state()) {
    case v1::SERVING_STATE_RECOVERING:
      info.state = "recovering";
      break;
    case v1::SERVING_STATE_SERVING:
      info.state = "serving";
      break;
    case v1::SERVING_STATE_DRAINING:
      info.state = "draining";
      break;
    default:
      break;
  }
  return info;
}

v1::OpenNamespaceRequest ToWire(const NamespaceSpec& spec, const std::string& session_token) {
  v1::OpenNamespaceRequest request;
  request.set_session_token(session_token);
  request.set_model(spec.model);
  request.set_dtype(spec.dtype);
  request.set_layout(spec.layout);
  request.set_tokens_per_chunk(spec.tokens_per_chunk);
  request.set_bytes_per_part(spec.bytes_per_part);
  request.set_parts(spec.parts);
  request.set_hash_algorithm(spec.hash_algorithm);
  request.set_hash_seed(spec.hash_seed);
  request.set_tenant(spec.tenant);
  return request;
}

SessionStream::~SessionStream() {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(!started_ || returned_);
}

void SessionStream::Start(v1::KvCache::Stub* stub, absl::string_view client_name,
                          const std::string& authorization) {
  if (!authorization.empty()) context_.AddMetadata("authorization", authorization);
  started_ = true;
  request_.set_client_name(std::string(client_name));
  stub->async()->OpenSession(&context_, &request_, this);
  StartRead(&event_);
  StartCall();
}

void SessionStream::OnReadDone(bool ok) {
  if (!ok) return;  // OnDone follows
  bool news = false;
  {
    MutexLock lock(&mu_);
    if (!opened_ && !event_.session_token().empty()) {
      opened_ = news = true;
      token_ = event_.session_token();
      limits_ = FromWire(event_.limits());
    }
  }
  if (news) changed_();
  StartRead(&event_);
}

void SessionStream::OnDone(const grpc::Status& status) {
  {
    MutexLock lock(&mu_);
    done_ = true;
    status_ = FromGrpc(status);
  }
  changed_();
  MutexLock lock(&mu_);
  returned_ = true;
  over_.NotifyAll();
}

absl::Status SessionStream::WaitDone() {
  MutexLock lock(&mu_);
  while (!returned_) over_.Wait(&mu_);
  return status_;
}

bool SessionStream::opened() const {
  MutexLock lock(&mu_);
  return opened_;
}
bool SessionStream::done() const {
  MutexLock lock(&mu_);
  return done_;
}
absl::Status SessionStream::status() const {
  MutexLock lock(&mu_);
  return status_;
}
std::string SessionStream::token() const {
  MutexLock lock(&mu_);
  return token_;
}
ServerLimits SessionStream::limits() const {
  MutexLock lock(&mu_);
  return limits_;
}

}  // namespace kvkeep::client
