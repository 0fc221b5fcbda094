#include "server/doors.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include <cstdlib>

#include "server/sockets.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr const char* kServiceName = "kvkeep.v1.KvCache";
// The largest lookup (65,536 keys of 32 bytes) and the largest Put frame with its headers both fit.
constexpr int kMaxReceiveBytes = 5 * kMiB + 64 * kKiB;
constexpr int kHttp2FrameBytes =
    4 * kMiB;  // moves MB payloads 5-10 % faster than the default 16 KiB
constexpr int kMaxCallsPerConnection = 1024;
// A client that is stopped, or a cable that is cut, is noticed after these two together.
constexpr int kKeepaliveMs = 20'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
constexpr int kMinClientPingMs = 5'000;

// gRPC reports what our one line on a failed start says already. GRPC_VERBOSITY brings its log
// back.
void QuietGrpcLog() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
}

// Holds the gRPC library for the life of the process. Without it the end of the last server shuts
// the library down, and that may wait 10 s for a poller of its own (seen under load).
void KeepGrpcLibrary() {
  static const bool kept = (grpc_init(), true);
  (void)kept;
}

void Configure(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxReceiveBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kMinClientPingMs);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use is an error
}

absl::StatusOr<std::unique_ptr<grpc::Server>> Start(grpc::ServerBuilder* builder,
                                                    const std::string& address) {
  std::unique_ptr<grpc::Server> server = builder->BuildAndStart();
  if (server == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        address,
        ": cannot listen there; it is in use or not permitted: choose another in the config"));
  }
  return server;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Doors>> Doors::Open(const Options& options, KvService* kv,
                                                   AdminService* admin) {
  QuietGrpcLog();
  KeepGrpcLibrary();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  for (const std::string& path : {options.socket_path, options.admin_socket_path}) {
    KVKEEP_RETURN_IF_ERROR(PrepareSocketPath(path));
  }
  std::unique_ptr<Doors> doors(new Doors());
  {
    grpc::ServerBuilder builder;
    Configure(&builder);
    builder.AddListeningPort("unix:" + options.admin_socket_path,
                             grpc::InsecureServerCredentials());
    builder.RegisterService(admin);
    KVKEEP_ASSIGN_OR_RETURN(doors->admin_, Start(&builder, options.admin_socket_path));
    KVKEEP_RETURN_IF_ERROR(SetSocketMode(options.admin_socket_path, 0600));
  }
  grpc::ServerBuilder builder;
  Configure(&builder);
  std::string address = options.socket_path;
  builder.AddListeningPort("unix:" + options.socket_path, grpc::InsecureServerCredentials());
  if (!options.tcp_address.empty()) {
    builder.AddListeningPort(options.tcp_address, grpc::InsecureServerCredentials());
    address = absl::StrCat(address, " or ", options.tcp_address);
  }
  builder.RegisterService(kv);
  KVKEEP_ASSIGN_OR_RETURN(doors->clients_, Start(&builder, address));
  KVKEEP_RETURN_IF_ERROR(SetSocketMode(options.socket_path, 0660));
  return doors;
}

Doors::~Doors() { Close(std::chrono::milliseconds(0)); }

void Doors::SetServing(bool serving) {
  for (const std::unique_ptr<grpc::Server>* server : {&clients_, &admin_}) {
    grpc::HealthCheckServiceInterface* health = (*server)->GetHealthCheckService();
    if (health != nullptr) health->SetServingStatus(kServiceName, serving);
  }
}

void Doors::Close(std::chrono::milliseconds grace) {
  const auto deadline = std::chrono::system_clock::now() + grace;
  for (std::unique_ptr<grpc::Server>* server : {&clients_, &admin_}) {
    if (*server == nullptr) continue;
    (*server)->Shutdown(deadline);
    (*server)->Wait();
    server->reset();
  }
}

}  // namespace kvkeep
