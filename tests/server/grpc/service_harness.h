// A whole daemon in this process on a scratch directory, and a client of it made of generated
// stubs.
#pragma once

#include <grpcpp/create_channel.h>

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvkeep/v1/kvkeep.grpc.pb.h"
#include "server/daemon.h"
#include "tests/fakes/joining.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/seeded_random.h"

namespace kvkeep {

inline std::string TestKey(int number) {
  std::string key(32, '\0');
  std::memcpy(key.data(), &number, sizeof(number));
  key[31] = 'k';
  return key;
}

inline std::string TestBytes(uint64_t seed, size_t bytes) {
  SeededRandom random(seed);
  std::string out(bytes, '\0');
  random.Fill(std::as_writable_bytes(std::span(out)));
  return out;
}

class TestDaemon {
 public:
  TestDaemon() {
    options_.storage.arena.capacity_bytes = 64 * kMiB;
    options_.storage.arena.backing = ArenaBacking::kMemfd;
    options_.storage.io.mode = IoMode::kThreads;
    options_.storage.devices = {{.dir = dir_ / "nvme0", .capacity_bytes = 160 * kMiB}};
    options_.tenants[0].grpc.path = dir_ / "kv.sock";
    options_.admin_socket_path = dir_ / "admin.sock";
    options_.storage.state_dir = dir_ / "state";
    options_.drain_timeout = std::chrono::seconds(10);
    options_.log_level = spdlog::level::err;
    options_.storage.store.max_chunks = 10000;
    Start();
  }

  DaemonOptions& options() { return options_; }
  void Start() {
    absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(options_, "test");
    INFO(daemon.status());
    REQUIRE(daemon.ok());
    daemon_ = *std::move(daemon);
    REQUIRE(Eventually(std::not_fn(AnyDeviceJoins)));
  }
  void Stop() { daemon_.reset(); }

  std::shared_ptr<grpc::Channel> Channel() const { return Connect(options_.tenants[0].grpc.path); }
  v1::StatusResponse Status() const {
    v1::StatusResponse response;
    grpc::ClientContext context;
    const grpc::Status status = v1::Admin::NewStub(AdminChannel())->Status(&context, {}, &response);
    REQUIRE(status.ok());
    return response;
  }
  std::shared_ptr<grpc::Channel> AdminChannel() const {
    return Connect(options_.admin_socket_path);
  }
  // Waits until `condition` holds for the status, at most a minute.
  template <typename F>
  bool Eventually(F condition) const {
    for (int i = 0; i < 3'000; ++i) {
      if (condition(Status())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for the daemon's work
    }
    return false;
  }

 private:
  static std::shared_ptr<grpc::Channel> Connect(const std::string& path) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(8 << 20);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel("unix:" + path, grpc::InsecureChannelCredentials(), arguments);
  }

  ScratchDir dir_;
  DaemonOptions options_;
  std::unique_ptr<Daemon> daemon_;
};

// A session with one namespace of varying sizes and four parts.
class TestClient {
 public:
  using PutCall = grpc::ClientReaderWriter<v1::PutFrame, v1::PutResult>;

  explicit TestClient(const TestDaemon& daemon, uint64_t bytes_per_part = 0)
      : TestClient(daemon.Channel(), bytes_per_part) {}
  explicit TestClient(const std::shared_ptr<grpc::Channel>& channel, uint64_t bytes_per_part = 0)
      : stub(v1::KvCache::NewStub(channel)) {
    events_ = stub->OpenSession(&session_context_, {});
    v1::SessionEvent event;
    REQUIRE(events_->Read(&event));
    session = event.session_token();
    v1::OpenNamespaceRequest request;
    request.set_session_token(session);
    request.set_model("test");
    request.set_dtype("bf16");
    request.set_layout("NHD");
    request.set_tokens_per_chunk(256);
    request.set_bytes_per_part(bytes_per_part);
    request.set_parts(4);
    request.set_hash_algorithm("sha256");
    v1::OpenNamespaceResponse response;
    grpc::ClientContext context;
    const grpc::Status status = stub->OpenNamespace(&context, request, &response);
    INFO(status.error_message());
    REQUIRE(status.ok());
    ns = response.namespace_digest();
  }
  ~TestClient() { EndSession(); }

  void EndSession() {
    session_context_.TryCancel();
    if (events_ != nullptr) events_->Finish();
    events_.reset();
  }

  template <typename Request>
  Request About(const std::vector<int>& keys, const std::vector<uint32_t>& parts = {0}) const {
    Request request;
    request.set_session_token(session);
    request.set_namespace_digest(ns);
    for (const int key : keys) *request.mutable_keys() += TestKey(key);
    for (const uint32_t part : parts) request.add_parts(part);
    return request;
  }
  v1::PutFrame FirstFrame(int key, uint64_t payload_bytes) const {
    v1::PutFrame frame;
    frame.mutable_stream()->set_session_token(session);
    frame.mutable_stream()->set_namespace_digest(ns);
    frame.mutable_chunk()->set_key(TestKey(key));
    frame.mutable_chunk()->set_payload_bytes(payload_bytes);
    return frame;
  }
  // Sends frames and ends the stream. Returns its results and status.
  std::pair<std::vector<v1::PutResult>, grpc::Status> Put(
      const std::vector<v1::PutFrame>& frames) const {
    grpc::ClientContext context;
    const std::unique_ptr<PutCall> call = stub->Put(&context);
    for (const v1::PutFrame& frame : frames) {
      if (!call->Write(frame)) break;
    }
    call->WritesDone();
    std::vector<v1::PutResult> results;
    for (v1::PutResult result; call->Read(&result);) results.push_back(result);
    return {results, call->Finish()};
  }
  // Puts one chunk in frames of at most 3 MiB, with a header changed by `edit`.
  v1::PutResult PutChunk(int key, const std::string& payload,
                         const std::function<void(v1::PutChunkHeader*)>& edit = {}) const {
    std::vector<v1::PutFrame> frames = {FirstFrame(key, payload.size())};
    if (edit) edit(frames[0].mutable_chunk());
    for (size_t at = 0; at < payload.size(); at += 3 << 20) {
      frames.emplace_back().set_payload(payload.substr(at, 3 << 20));
    }
    const auto [results, status] = Put(frames);
    INFO(status.error_message());
    REQUIRE(status.ok());
    REQUIRE(results.size() == 1);
    return results[0];
  }
  std::pair<std::vector<v1::GetFrame>, grpc::Status> Get(const v1::GetRequest& request) const {
    grpc::ClientContext context;
    const auto call = stub->Get(&context, request);
    std::vector<v1::GetFrame> frames;
    for (v1::GetFrame frame; call->Read(&frame);) frames.push_back(frame);
    return {frames, call->Finish()};
  }

  std::unique_ptr<v1::KvCache::Stub> stub;
  std::string session, ns;

 private:
  grpc::ClientContext session_context_;
  std::unique_ptr<grpc::ClientReader<v1::SessionEvent>> events_;
};

}  // namespace kvkeep
