#include "client/admin.h"

#include <absl/strings/str_cat.h>
#include <grpcpp/create_channel.h>

#include <algorithm>

#include "client/connection.h"
#include "client/core.h"
#include "client/tls_probe.h"

namespace kvkeep::client {

AdminClient::AdminClient(const std::string& endpoint, Deadline deadline,
                         const SecurityOptions& security)
    : endpoint_(endpoint), deadline_(deadline), security_(security) {
  KeepGrpcLoaded();
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
  constexpr Deadline kPatience{2'000};
  absl::Status why = FromGrpc(status);
  if (!absl::IsUnavailable(why) || !security_.tls() || HostOf(endpoint_).empty()) return why;
  const std::string tls = ExplainTls(endpoint_, security_, std::min(kPatience, deadline_));
  return tls.empty() ? why : absl::UnavailableError(absl::StrCat(endpoint_, ": ", tls));
}

std::unique_ptr<grpc::ClientContext> AdminClient::NewContext(Deadline deadline) const {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + deadline);
  return context;
}

absl::StatusOr<v1::StatusResponse> AdminClient::Status() {
  if (!unusable_.ok()) return unusable_;
  v1::StatusResponse response;
  const grpc::Status status = stub_->Status(NewContext(deadline_).get(), {}, &response);
  if (!status.ok()) return ErrorOf(status);
  return response;
}

absl::StatusOr<v1::ClearResponse> AdminClient::Clear(const NamespaceDigest* ns) {
  if (!unusable_.ok()) return unusable_;
  v1::ClearRequest request;
  if (ns != nullptr) request.set_namespace_digest(std::string(ns->view()));
  v1::ClearResponse response;
  const grpc::Status status = stub_->Clear(NewContext(deadline_).get(), request, &response);
  if (!status.ok()) return ErrorOf(status);
  return response;
}

absl::StatusOr<v1::DrainResponse> AdminClient::Drain(Deadline timeout) {
  if (!unusable_.ok()) return unusable_;
  v1::DrainRequest request;
  request.set_timeout_ms(static_cast<uint64_t>(timeout.count()));
  v1::DrainResponse response;
  // One second more than the daemon takes: it should be the one to say that time was up.
  const Deadline deadline = std::max(deadline_, timeout + std::chrono::seconds(1));
  const grpc::Status status = stub_->Drain(NewContext(deadline).get(), request, &response);
  if (!status.ok()) return ErrorOf(status);
  return response;
}

}  // namespace kvkeep::client
