#include <catch2/catch.hpp>

#include "client/grpc/grpc_client.h"

namespace kvkeep::client {

TEST_CASE("a call whose session the daemon has ended says UNAVAILABLE, as if it were away") {
  // The text of tiers/store/session_table.cc, with what server/grpc/convert.cc adds.
  const absl::Status ended =
      FromGrpc({grpc::StatusCode::FAILED_PRECONDITION,
                "session_token is not of an open session (daemon incarnation 9) (incarnation 9)"});
  CHECK(absl::IsUnavailable(ended));
  CHECK(ended.message().find("incarnation 9") != std::string::npos);
  const absl::Status lease = FromGrpc({grpc::StatusCode::FAILED_PRECONDITION, "lease 7 is over"});
  CHECK(lease == absl::FailedPreconditionError("lease 7 is over"));
  CHECK(FromGrpc(grpc::Status::OK).ok());
}

}  // namespace kvkeep::client
