// UnaryCall: what gRPC uses of a call to another node until the call has ended.
#pragma once

#include <memory>

#include "kvkeep/v1/peer.grpc.pb.h"

namespace kvkeep {

template <typename Request, typename Response>
struct UnaryCall {
  Request request;
  Response response;
  std::unique_ptr<v1::Peer::Stub> stub;
};

}  // namespace kvkeep
