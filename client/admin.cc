#include "client/admin.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "client/core.h"

namespace kvkeep::client {

namespace {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& endpoint) {
  KeepGrpcLoaded();
  return grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials());
}

}  // namespace

AdminClient::AdminClient(const std::string& endpoint, Deadline deadline)
    : deadline_(deadline), stub_(v1::Admin::NewStub(MakeChannel(endpoint))) {}

std::unique_ptr<grpc::ClientContext> AdminClient::NewContext(Deadline deadline) const {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + deadline);
  return context;
}

absl::StatusOr<v1::StatusResponse> AdminClient::Status() {
  v1::StatusResponse response;
  const grpc::Status status = stub_->Status(NewContext(deadline_).get(), {}, &response);
  if (!status.ok()) return FromGrpc(status);
  return response;
}

absl::StatusOr<v1::ClearResponse> AdminClient::Clear(const NamespaceDigest* ns) {
  v1::ClearRequest request;
  if (ns != nullptr) request.set_namespace_digest(std::string(ns->view()));
  v1::ClearResponse response;
  const grpc::Status status = stub_->Clear(NewContext(deadline_).get(), request, &response);
  if (!status.ok()) return FromGrpc(status);
  return response;
}

absl::StatusOr<v1::DrainResponse> AdminClient::Drain(Deadline timeout) {
  v1::DrainRequest request;
  request.set_timeout_ms(static_cast<uint64_t>(timeout.count()));
  v1::DrainResponse response;
  // One second more than the daemon takes: it should be the one to say that time was up.
  const Deadline deadline = std::max(deadline_, timeout + std::chrono::seconds(1));
  const grpc::Status status = stub_->Drain(NewContext(deadline).get(), request, &response);
  if (!status.ok()) return FromGrpc(status);
  return response;
}

}  // namespace kvkeep::client
