// Session: an open session over gRPC and its connections. Internal to the library.
#pragma once

#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "client/grpc/connection.h"
#include "client/values/types.h"
#include "kvkeep/v1/kvkeep.grpc.pb.h"

namespace kvkeep::client {

// The identity of a session, for leases, which only need to recognize it.
struct SessionId {
  std::string token;
  uint64_t epoch = 0;  // counts this client's attempts to open a session, from 1
  std::atomic<bool> over{false};
  std::atomic<int> late_puts{0};  // its ended puts whose memory gRPC still refers to
};

// A session with the daemon and its connections: the first one for its stream and small calls, all
// of them in turn for payload. The daemon recognizes a call by the session's token, on any
// connection. Constant once published, except for `turn`.
struct Session {
  uint64_t epoch() const { return id->epoch; }
  bool over() const { return id->over; }
  void Break() const {
    for (const auto& connection : connections) connection->Break();
  }
  // Returns whether any connection but the first has closed. The first one ends with the session's
  // stream, which tells why.
  bool lost_connection() const {
    return std::any_of(connections.begin() + 1, connections.end(),
                       [](const auto& connection) { return connection->closed(); });
  }
  grpc::GenericStub& NextRaw() const {
    return *raw[turn.fetch_add(1, std::memory_order_relaxed) % raw.size()];
  }

  std::shared_ptr<SessionId> id = std::make_shared<SessionId>();
  std::vector<std::unique_ptr<Connection>> connections;  // ClientOptions::channels
  std::unique_ptr<v1::KvCache::Stub> stub;
  std::vector<std::unique_ptr<grpc::GenericStub>> raw;  // of each, for the payload streams
  ServerLimits limits;
  mutable std::atomic<uint32_t> turn{0};
};
using SessionPtr = std::shared_ptr<const Session>;

}  // namespace kvkeep::client
