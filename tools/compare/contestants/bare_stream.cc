// libkvkeep-bare-stream.so: the bare stream of stream_contestant.py. gRPC sends and drops bytes in
// frames of kvkeep's size, with its settings of HTTP/2 and of malloc: on a Unix socket with
// kvkeep's buffers at both ends, or by mutual TLS on loopback, as nodes of a fleet do. It keeps
// nothing and checks nothing.
//
// One stream a process, to a server that is forked for it and dies with it. One thread. Start it
// before anything else in the process uses gRPC.
#include <absl/synchronization/mutex.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/payload_malloc.h"
#include "proto/http2_settings.h"
#include "tiers/base/send_buffer.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"

namespace kvkeep::compare {
namespace {

// As kvkeep's frames both ways: GetStream::kFramePieces, and kMaxFrameBytes of
// client/grpc/put_frames.cc.
constexpr uint64_t kFrameBytes = 2 * kMiB;
constexpr std::chrono::seconds kConnectTime{60};
constexpr char kSend = 'G', kDrop = 'P';

// Asks the server to send this many bytes, or announces this many.
struct Request {
  char what = 0;
  uint64_t bytes = 0;
};

grpc::ByteBuffer Copied(const void* data, size_t bytes) {
  const grpc::Slice slice(data, bytes);
  return grpc::ByteBuffer(&slice, 1);
}
// Wraps bytes without a copy: the memory outlives the call.
grpc::ByteBuffer Borrowed(const void* data, size_t bytes) {
  const grpc::Slice slice(data, bytes, grpc::Slice::STATIC_SLICE);
  return grpc::ByteBuffer(&slice, 1);
}

// One stream, until the client ends it: the server gets requests, and sends or drops bytes.
class Pump final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Pump(const std::vector<std::byte>& bytes) : bytes_(bytes) { StartRead(&incoming_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (to_come_ == 0) {
      grpc::Slice slice;
      Request request;
      if (!incoming_.DumpToSingleSlice(&slice).ok() || slice.size() != sizeof(request)) {
        return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no request"));
      }
      std::memcpy(&request, slice.begin(), sizeof(request));
      if (request.what == kSend) {
        to_go_ = request.bytes;
        return SendNext();
      }
      to_come_ = request.bytes;
    } else {
      to_come_ -= std::min<uint64_t>(to_come_, incoming_.Length());
      incoming_.Clear();
      if (to_come_ == 0) {
        outgoing_ = Copied("k", 1);
        return StartWrite(&outgoing_);
      }
    }
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (to_go_ > 0) return SendNext();
    StartRead(&incoming_);
  }
  void OnDone() override { delete this; }

 private:
  void SendNext() {
    const uint64_t size = std::min(to_go_, kFrameBytes);
    if (at_ + size > bytes_.size()) at_ = 0;
    outgoing_ = Borrowed(bytes_.data() + at_, size);
    at_ += size;
    to_go_ -= size;
    StartWrite(&outgoing_);
  }

  const std::vector<std::byte>& bytes_;
  uint64_t at_ = 0;
  uint64_t to_come_ = 0, to_go_ = 0;
  grpc::ByteBuffer incoming_, outgoing_;
};

class PumpService final : public grpc::CallbackGenericService {
 public:
  explicit PumpService(uint64_t bytes) : bytes_(bytes) {}

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Pump(bytes_);
  }
  const std::vector<std::byte> bytes_;  // sent from: cold, as an arena is
};

// What one end of mutual TLS has: PEM texts.
struct Identity {
  std::string ca, certificate, key;
};

Http2Link LinkOf(const Identity* identity) {
  return identity == nullptr ? Http2Link::kThisMachine : Http2Link::kNetwork;
}

std::string ReadText(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The server: serves the socket or, with an identity, a port of loopback, which it writes to the
// socket.
[[noreturn]] void Serve(int socket, uint64_t bytes, const Identity* identity) {
  client::TuneMallocForPayloads();
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);  // as in kvkeepd
  PumpService service(bytes);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  SetHttp2(LinkOf(identity), &builder);
  builder.RegisterCallbackGenericService(&service);
  int port = 0;
  if (identity != nullptr) {
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = identity->ca;
    options.pem_key_cert_pairs = {{identity->key, identity->certificate}};
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
  }
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) _exit(1);
  if (identity == nullptr) {
    grpc::AddInsecureChannelFromFd(server.get(), socket);
  } else if (write(socket, &port, sizeof(port)) != sizeof(port)) {
    _exit(1);
  }
  server->Wait();
  _exit(1);
}

grpc::ChannelArguments Arguments(const Identity* identity) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  SetHttp2(LinkOf(identity), &arguments);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

class BareStream {
 public:
  explicit BareStream(const std::shared_ptr<grpc::Channel>& channel) {
    stub_ = std::make_unique<grpc::GenericStub>(channel);
    context_.set_wait_for_ready(true);
    stream_ = stub_->PrepareCall(&context_, "/compare.Bare/Pump", &queue_);
    stream_->StartCall(this);
    started_ = Done();
  }

  bool Put(const char* data, uint64_t bytes) {
    bool sent = Ask(kDrop, bytes);
    for (uint64_t at = 0; sent && at < bytes; at += kFrameBytes) {
      sent = Write(Borrowed(data + at, std::min(bytes - at, kFrameBytes)));
    }
    grpc::ByteBuffer answer;
    return sent && Read(&answer);
  }

  bool Get(char* to, uint64_t bytes) {
    if (!Ask(kSend, bytes)) return false;
    for (uint64_t at = 0; at < bytes;) {
      grpc::ByteBuffer frame;
      std::vector<grpc::Slice> slices;
      if (!Read(&frame) || !frame.Dump(&slices).ok()) return false;
      frame.Clear();
      for (const grpc::Slice& slice : slices) {
        if (slice.size() > bytes - at) return false;
        std::memcpy(to + at, slice.begin(), slice.size());
        at += slice.size();
      }
    }
    return true;
  }

 private:
  bool Done() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }
  bool Write(const grpc::ByteBuffer& message) {
    stream_->Write(message, this);
    return Done();
  }
  bool Read(grpc::ByteBuffer* message) {
    stream_->Read(message, this);
    return Done();
  }
  bool Ask(char what, uint64_t bytes) {
    const Request request{what, bytes};
    return started_ && Write(Copied(&request, sizeof(request)));
  }

  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericStub> stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  bool started_ = false;
};

BareStream* the_stream = nullptr;  // ends with the process

// Starts a server and connects the stream: by TLS if there is an `identity`, to a server whose
// certificate says `name`, else by a pair of sockets. Returns the server's process, or -1 for none.
pid_t Start(uint64_t capacity_bytes, const Identity* identity, const char* name) {
  int ends[2];  // without TLS, the connection itself, which gRPC closes
  const int flags = SOCK_CLOEXEC | (identity == nullptr ? SOCK_NONBLOCK : 0);
  if (socketpair(AF_UNIX, SOCK_STREAM | flags, 0, ends) != 0) return -1;
  UniqueFd ours(ends[0]), theirs(ends[1]);
  if (identity == nullptr) {
    WidenSendBuffer(ours.get());
    WidenSendBuffer(theirs.get());  // as kvkeep's client and daemon do
  }
  const pid_t starter = getpid();
  const pid_t server = fork();  // before this process touches gRPC
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != starter) _exit(99);
    ours.Reset();
    Serve(theirs.Release(), capacity_bytes, identity);
  }
  if (server < 0) return server;
  client::TuneMallocForPayloads();
  theirs.Reset();
  if (identity == nullptr) {
    the_stream = new BareStream(
        grpc::CreateCustomInsecureChannelFromFd("bare", ours.Release(), Arguments(identity)));
    return server;
  }
  int port = 0;
  if (read(ours.get(), &port, sizeof(port)) != sizeof(port)) return -1;
  grpc::ChannelArguments arguments = Arguments(identity);
  arguments.SetSslTargetNameOverride(name);
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                grpc::SslCredentials({.pem_root_certs = identity->ca,
                                                      .pem_private_key = identity->key,
                                                      .pem_cert_chain = identity->certificate}),
                                arguments);
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + kConnectTime)) return -1;
  the_stream = new BareStream(channel);
  return server;
}

}  // namespace
}  // namespace kvkeep::compare

#define KVKEEP_EXPORTED extern "C" __attribute__((visibility("default")))

KVKEEP_EXPORTED int bare_stream_start(uint64_t capacity_bytes) {
  return kvkeep::compare::Start(capacity_bytes, nullptr, nullptr);
}
// By mutual TLS on loopback. Both ends have the certificate, whose name is `name`.
KVKEEP_EXPORTED int bare_stream_start_tls(uint64_t capacity_bytes, const char* ca_file,
                                          const char* certificate_file, const char* key_file,
                                          const char* name) {
  using kvkeep::compare::ReadText;
  const kvkeep::compare::Identity identity{.ca = ReadText(ca_file),
                                           .certificate = ReadText(certificate_file),
                                           .key = ReadText(key_file)};
  return kvkeep::compare::Start(capacity_bytes, &identity, name);
}
// 0: done.
KVKEEP_EXPORTED int bare_stream_put(const char* data, uint64_t bytes) {
  return kvkeep::compare::the_stream->Put(data, bytes) ? 0 : 1;
}
KVKEEP_EXPORTED int bare_stream_get(char* to, uint64_t bytes) {
  return kvkeep::compare::the_stream->Get(to, bytes) ? 0 : 1;
}
