// RefusingService: answers every call with the reason why its connection may not come in, so that a
// client that the policy of a socket keeps out reads more than "connection closed".
//
// For a gRPC server of its own, which has no other service and no port. Thread-safe.
#pragma once

#include <absl/status/status.h>
#include <grpcpp/generic/async_generic_service.h>

#include "server/sockets/connection_table.h"

namespace kvkeep {

class RefusingService final : public grpc::CallbackGenericService {
 public:
  // Before gRPC gets the connection. False: that many refused ones are open; close it instead.
  bool Add(int fd, const absl::Status& reason);

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  ConnectionTable<absl::Status> reasons_;
};

}  // namespace kvkeep
