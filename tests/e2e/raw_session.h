// RawSession: a session on the bare wire, for actions that the client library never takes: a put
// that stops in the middle, a header that no library would send, a lease that is never given back.
//
// Throws std::runtime_error if the daemon refuses. One thread.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <list>
#include <memory>
#include <optional>
#include <string>

#include "kvkeep/v1/kvkeep.grpc.pb.h"
#include "tests/e2e/engine.h"

namespace kvkeep::e2e {

class RawSession {
 public:
  // Opens a session and the namespace of Engine::DefaultSpec.
  explicit RawSession(const std::string& endpoint, const std::string& name = "raw");
  ~RawSession();

  // Leases the chunk until the session ends. Returns the leased bytes.
  uint64_t Lease(const TestChunk& chunk);
  // Starts a put of the chunk and sends the first half of its payload; then nothing more.
  void PutHalf(const TestChunk& chunk);
  // Starts a get of the chunks and reads nothing.
  void GetUnread(const std::vector<TestChunk>& chunks);
  // Reads the next frame of the first of these gets. Returns its payload's bytes; none at the end.
  std::optional<uint64_t> ReadFrame();
  // Returns how the first put of PutHalf ended, once it has.
  grpc::Status AwaitPutEnd();
  // Returns the daemon's answer to a put of that many zeros, without client-side checks.
  v1::PutResult PutZeros(uint64_t number, uint64_t bytes);

 private:
  using PutStream = grpc::ClientReaderWriter<v1::PutFrame, v1::PutResult>;
  struct OpenPut {
    grpc::ClientContext context;
    std::unique_ptr<PutStream> stream;
  };
  struct OpenGet {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::GetFrame>> stream;
  };
  v1::PutFrame FirstFrame(uint64_t number, uint64_t bytes) const;

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::KvCache::Stub> stub_;
  grpc::ClientContext session_context_;
  std::unique_ptr<grpc::ClientReader<v1::SessionEvent>> session_;
  std::string token_, digest_;
  std::list<OpenPut> puts_;
  std::list<OpenGet> gets_;
};

// Makes one call with hand-made bytes, for services whose messages are not generated here (health,
// reflection).
absl::StatusOr<std::string> RawCall(const std::string& endpoint, const std::string& method,
                                    const std::string& request);

}  // namespace kvkeep::e2e
