#include <absl/synchronization/mutex.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "client/payload_malloc.h"
#include "tiers/base/send_buffer.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tools/compare/contestant.h"

namespace kvkeep::compare {
namespace {

// As kvkeep's frames both ways: GetStream::kFramePieces, and kMaxFrameBytes of
// client/grpc/put_frames.cc.
constexpr uint64_t kFrameBytes = 2 * kMiB;
constexpr int kHttp2FrameBytes = 4 << 20;
constexpr char kSend = 'G', kDrop = 'P';

// Asks the server to send so many bytes, or says that so many will come.
struct Request {
  char what = 0;
  uint64_t bytes = 0;
};

grpc::ByteBuffer Copied(const void* data, size_t bytes) {
  const grpc::Slice slice(data, bytes);
  return grpc::ByteBuffer(&slice, 1);
}
// Without a copy: the memory outlives the call.
grpc::ByteBuffer Borrowed(const void* data, size_t bytes) {
  const grpc::Slice slice(data, bytes, grpc::Slice::STATIC_SLICE);
  return grpc::ByteBuffer(&slice, 1);
}

// One stream, for as long as the client wants: requests come, bytes go or are dropped.
class Pump final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Pump(const std::vector<std::byte>& bytes) : bytes_(bytes) { StartRead(&incoming_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (to_come_ == 0) {
      std::vector<grpc::Slice> slices;
      std::string text;
      if (incoming_.Dump(&slices).ok()) {
        for (const grpc::Slice& slice : slices) {
          text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
        }
      }
      if (text.size() != sizeof(Request)) {
        return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no request"));
      }
      Request request;
      std::memcpy(&request, text.data(), sizeof(request));
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

[[noreturn]] void Serve(int socket, uint64_t bytes) {
  client::TuneMallocForPayloads();
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);  // as in kvkeepd
  PumpService service(bytes);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) _exit(1);
  grpc::AddInsecureChannelFromFd(server.get(), socket);
  server->Wait();
  _exit(1);
}

class BareStream final : public Contestant {
 public:
  BareStream(UniqueFd socket, pid_t server) : server_(server) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
    stub_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomInsecureChannelFromFd("bare", socket.Release(), arguments));
    context_.set_wait_for_ready(true);
    stream_ = stub_->PrepareCall(&context_, "/compare.Bare/Pump", &queue_);
    stream_->StartCall(this);
    started_ = Done();
  }
  ~BareStream() override {
    context_.TryCancel();
    grpc::Status status;
    stream_->Finish(&status, this);
    Done();
    queue_.Shutdown();
    kill(server_, SIGKILL);
    waitpid(server_, nullptr, 0);
  }

  absl::Status Put(const ChunkKey&, std::span<const std::byte> payload) override {
    KVKEEP_RETURN_IF_ERROR(Ask(kDrop, payload.size()));
    for (uint64_t at = 0; at < payload.size(); at += kFrameBytes) {
      const uint64_t size = std::min(payload.size() - at, kFrameBytes);
      KVKEEP_RETURN_IF_ERROR(Write(Borrowed(payload.data() + at, size)));
    }
    grpc::ByteBuffer answer;
    return Read(&answer);
  }

  absl::Status Get(const ChunkKey&, std::span<std::byte> out) override {
    KVKEEP_RETURN_IF_ERROR(Ask(kSend, out.size()));
    for (uint64_t at = 0; at < out.size();) {
      grpc::ByteBuffer frame;
      KVKEEP_RETURN_IF_ERROR(Read(&frame));
      std::vector<grpc::Slice> slices;
      if (!frame.Dump(&slices).ok()) return absl::InternalError("bare stream: a broken frame");
      frame.Clear();
      for (const grpc::Slice& slice : slices) {
        if (slice.size() > out.size() - at) return absl::InternalError("bare stream: too much");
        std::memcpy(out.data() + at, slice.begin(), slice.size());
        at += slice.size();
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Lookup(absl::Span<const ChunkKey> keys) override {
    KVKEEP_RETURN_IF_ERROR(Ask(kDrop, keys.size() * ChunkKey::kSize));
    KVKEEP_RETURN_IF_ERROR(Write(Borrowed(keys.data(), keys.size() * ChunkKey::kSize)));
    grpc::ByteBuffer answer;
    KVKEEP_RETURN_IF_ERROR(Read(&answer));
    return keys.size();
  }
  absl::Status Clear() override { return absl::OkStatus(); }

  std::vector<pid_t> Servers() const override { return {server_}; }

 private:
  bool Done() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }
  absl::Status Ask(char what, uint64_t bytes) {
    if (!started_) return Gone();
    const Request request{what, bytes};
    return Write(Copied(&request, sizeof(request)));
  }
  absl::Status Write(const grpc::ByteBuffer& message) {
    stream_->Write(message, this);
    return Done() ? absl::OkStatus() : Gone();
  }
  absl::Status Read(grpc::ByteBuffer* message) {
    stream_->Read(message, this);
    return Done() ? absl::OkStatus() : Gone();
  }
  static absl::Status Gone() { return absl::UnavailableError("the bare stream ended"); }

  const pid_t server_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericStub> stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  bool started_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contestant>> MakeBareStream(const Setup& setup) {
  int ends[2];  // what a connection is, too; gRPC closes them
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  UniqueFd ours(ends[0]), theirs(ends[1]);
  WidenSendBuffer(ours.get());
  WidenSendBuffer(theirs.get());  // as kvkeep's client and daemon do
  const pid_t starter = getpid();
  const pid_t server = fork();  // before this process touches gRPC
  if (server < 0) return absl::ErrnoToStatus(errno, "fork");
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != starter) _exit(99);
    ours.Reset();
    Serve(theirs.Release(), setup.capacity_bytes);
  }
  client::TuneMallocForPayloads();
  return std::make_unique<BareStream>(std::move(ours), server);
}

}  // namespace kvkeep::compare
