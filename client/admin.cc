#include "client/admin.h"

#include <absl/strings/str_cat.h>
#include <grpcpp/create_channel.h>

#include <algorithm>

#include "client/grpc/connection.h"
#include "client/grpc/grpc_client.h"
#include "client/grpc/tls_probe.h"

namespace kvkeep::client {

AdminClient::AdminClient(const std::string& endpoint, Deadline deadline,
                         const SecurityOptions& security)
    : endpoint_(endpoint), deadline_(deadline), security_(security) {
  unusable_ = KeepGrpcLoaded();
  if (!unusable_.ok()) return;
  grpc::ChannelArguments arguments;
  absl::StatusOr<TcpSecurity> tcp = TcpSecurity{grpc::InsecureChannelCredentials(), ""};
  if (!HostOf(endpoint).empty()) {
    unusable_ = security.Validate(endpoint);
    if (unusable_.ok()) tcp = SecurityOf(security, &arguments);
    if (!tcp.ok()) unusable_ = tcp.status();
  }
  if (!unusable_.ok()) return;
  stub_ = v1::Admin::NewStub(grpc::CreateCustomChannel(endpoint, tcp->credentials, arguments));
}

absl::Status AdminClient::ErrorOf(const grpc::Status& status) const {
  return ExplainedByTls(FromGrpc(status), endpoint_, security_, deadline_);
}

std::unique_ptr<grpc::ClientContext> AdminClient::NewContext(Deadline deadline) const {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + deadline);
  return context;
}

template <typename Request, typename Response>
absl::StatusOr<Response> AdminClient::Call(
    grpc::Status (v1::Admin::Stub::*call)(grpc::ClientContext*, const Request&, Response*),
    const Request& request, Deadline deadline) {
  if (!unusable_.ok()) return unusable_;
  Response response;
  const grpc::Status status = (stub_.get()->*call)(NewContext(deadline).get(), request, &response);
  if (!status.ok()) return ErrorOf(status);
  return response;
}

absl::StatusOr<v1::StatusResponse> AdminClient::Status() {
  return Call(&v1::Admin::Stub::Status, v1::StatusRequest(), deadline_);
}

absl::StatusOr<v1::ClearResponse> AdminClient::Clear(const NamespaceDigest* ns, bool g4) {
  v1::ClearRequest request;
  request.set_g4(g4);
  if (ns != nullptr) request.set_namespace_digest(std::string(ns->view()));
  return Call(&v1::Admin::Stub::Clear, request, deadline_);
}

absl::StatusOr<v1::DrainResponse> AdminClient::Drain(Deadline timeout, bool g4, bool to_peers) {
  v1::DrainRequest request;
  request.set_timeout_ms(static_cast<uint64_t>(timeout.count()));
  request.set_g4(g4);
  request.set_to_peers(to_peers);
  // One second more than the daemon's timeout, so that the daemon reports it.
  return Call(&v1::Admin::Stub::Drain, request,
              std::max(deadline_, timeout + std::chrono::seconds(1)));
}

absl::StatusOr<v1::ReloadConfigResponse> AdminClient::ReloadConfig() {
  return Call(&v1::Admin::Stub::ReloadConfig, v1::ReloadConfigRequest(), deadline_);
}

absl::StatusOr<v1::ShowConfigResponse> AdminClient::ShowConfig() {
  return Call(&v1::Admin::Stub::ShowConfig, v1::ShowConfigRequest(), deadline_);
}

absl::StatusOr<v1::ShowReuseResponse> AdminClient::ShowReuse() {
  return Call(&v1::Admin::Stub::ShowReuse, v1::ShowReuseRequest(), deadline_);
}

absl::StatusOr<v1::ListNamespacesResponse> AdminClient::ListNamespaces() {
  return Call(&v1::Admin::Stub::ListNamespaces, v1::ListNamespacesRequest(), deadline_);
}

absl::StatusOr<v1::EvictResponse> AdminClient::Evict(const v1::EvictRequest& request) {
  return Call(&v1::Admin::Stub::Evict, request, deadline_);
}

absl::StatusOr<v1::VerifyResponse> AdminClient::Verify(const v1::VerifyRequest& request) {
  return Call(&v1::Admin::Stub::Verify, request, deadline_);
}

}  // namespace kvkeep::client
