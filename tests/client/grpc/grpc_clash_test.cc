// This program is a process with a second gRPC: it defines an object of gRPC's under a unique name,
// as NIXL's libgrpc does, and the loader gives it to ours.
#include "client/grpc/grpc_clash.h"

#include <catch2/catch.hpp>

#include "client/admin.h"

asm(R"(
  .pushsection .bss
  .globl _ZZN9grpc_core10HPackTable17GetStaticMementosEvE15static_mementos
  .type _ZZN9grpc_core10HPackTable17GetStaticMementosEvE15static_mementos, @gnu_unique_object
  .size _ZZN9grpc_core10HPackTable17GetStaticMementosEvE15static_mementos, 8192
  .balign 64
_ZZN9grpc_core10HPackTable17GetStaticMementosEvE15static_mementos:
  .zero 8192
  .popsection
)");

namespace kvkeep::client {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("a second gRPC in the process is refused by its path, before ours is used") {
  const absl::Status clash = CheckGrpcClash();
  CHECK(clash.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(clash.message()),
             Contains("second gRPC") && Contains("client_grpc_clash_test") && Contains("libgrpc."));

  AdminClient admin("unix:/nonexistent/admin.sock", std::chrono::seconds(1));
  CHECK(admin.Status().status() == clash);
}

}  // namespace
}  // namespace kvkeep::client
