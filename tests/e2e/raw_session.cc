#include "tests/e2e/raw_session.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <stdexcept>

#include "client/grpc/grpc_client.h"

namespace kvkeep::e2e {
namespace {

constexpr uint64_t kFrameBytes = 4 << 20;

void Expect(bool happened, const char* what) {
  if (!happened) throw std::runtime_error(std::string("RawSession: ") + what);
}

// A connection of its own that takes the largest frames.
std::shared_ptr<grpc::Channel> OwnChannel(const std::string& endpoint) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(8 << 20);
  return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

RawSession::RawSession(const std::string& endpoint, const std::string& name)
    : channel_(OwnChannel(endpoint)), stub_(v1::KvCache::NewStub(channel_)) {
  v1::OpenSessionRequest open;
  open.set_client_name(name);
  session_ = stub_->OpenSession(&session_context_, open);
  v1::SessionEvent event;
  Expect(session_->Read(&event), "OpenSession");
  token_ = event.session_token();

  const client::NamespaceSpec spec = Engine::DefaultSpec();
  grpc::ClientContext context;
  v1::OpenNamespaceRequest request;
  request.set_session_token(token_);
  request.set_model(spec.model);
  request.set_tokens_per_chunk(spec.tokens_per_chunk);
  request.set_parts(spec.parts);
  v1::OpenNamespaceResponse response;
  Expect(stub_->OpenNamespace(&context, request, &response).ok(), "OpenNamespace");
  digest_ = response.namespace_digest();
}

RawSession::~RawSession() {
  for (OpenPut& put : puts_) {
    put.context.TryCancel();
    put.stream->Finish();
  }
  for (OpenGet& get : gets_) {
    get.context.TryCancel();
    get.stream->Finish();
  }
  session_context_.TryCancel();
  session_->Finish();
}

void RawSession::GetUnread(const std::vector<TestChunk>& chunks) {
  v1::GetRequest request;
  request.set_session_token(token_);
  request.set_namespace_digest(digest_);
  for (const TestChunk& chunk : chunks) {
    request.mutable_keys()->append(std::string(Key(chunk.number).view()));
  }
  OpenGet& get = gets_.emplace_back();
  get.stream = stub_->Get(&get.context, request);
}

std::optional<uint64_t> RawSession::ReadFrame() {
  v1::GetFrame frame;
  if (!gets_.front().stream->Read(&frame)) return std::nullopt;
  return frame.payload().size();
}

grpc::Status RawSession::AwaitPutEnd() {
  OpenPut& put = puts_.front();
  v1::PutResult result;
  while (put.stream->Read(&result)) {
  }
  const grpc::Status status = put.stream->Finish();
  puts_.pop_front();
  return status;
}

uint64_t RawSession::Lease(const TestChunk& chunk) {
  grpc::ClientContext context;
  v1::LookupRequest request;
  request.set_session_token(token_);
  request.set_namespace_digest(digest_);
  request.set_keys(std::string(Key(chunk.number).view()));
  request.set_lease_mode(v1::LEASE_MODE_LEADING_RUN);
  v1::LookupResponse response;
  Expect(stub_->Lookup(&context, request, &response).ok(), "Lookup");
  Expect(response.lease_id() != 0, "nothing was leased");
  return response.leased_bytes();
}

v1::PutFrame RawSession::FirstFrame(uint64_t number, uint64_t bytes) const {
  v1::PutFrame frame;
  frame.mutable_stream()->set_session_token(token_);
  frame.mutable_stream()->set_namespace_digest(digest_);
  frame.mutable_chunk()->set_key(std::string(Key(number).view()));
  frame.mutable_chunk()->set_payload_bytes(bytes);
  return frame;
}

void RawSession::PutHalf(const TestChunk& chunk) {
  OpenPut& put = puts_.emplace_back();
  put.stream = stub_->Put(&put.context);
  v1::PutFrame frame = FirstFrame(chunk.number, chunk.bytes);
  for (uint64_t left = chunk.bytes / 2; left > 0;) {
    const uint64_t bytes = std::min(left, kFrameBytes);
    frame.set_payload(std::string(bytes, 'x'));
    Expect(put.stream->Write(frame), "Write");
    frame.Clear();
    left -= bytes;
  }
}

v1::PutResult RawSession::PutZeros(uint64_t number, uint64_t bytes) {
  grpc::ClientContext context;
  const std::unique_ptr<PutStream> stream = stub_->Put(&context);
  Expect(stream->Write(FirstFrame(number, bytes)), "Write");
  v1::PutFrame frame;
  for (uint64_t left = bytes; left > 0;) {
    const uint64_t now = std::min(left, kFrameBytes);
    frame.set_payload(std::string(now, '\0'));
    Expect(stream->Write(frame), "Write");
    left -= now;
  }
  stream->WritesDone();
  v1::PutResult result;
  Expect(stream->Read(&result), "no result");
  Expect(stream->Finish().ok(), "Finish");
  return result;
}

absl::StatusOr<std::string> RawCall(const std::string& endpoint, const std::string& method,
                                    const std::string& request) {
  grpc::GenericStub stub(grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + milliseconds(20'000));
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  Expect(queue.Next(&tag, &ok), "no answer");
  if (!status.ok()) return client::FromGrpc(status);
  grpc::Slice whole;
  Expect(response.DumpToSingleSlice(&whole).ok(), "no bytes");
  return std::string(reinterpret_cast<const char*>(whole.begin()), whole.size());
}

}  // namespace kvkeep::e2e
