#include "tools/bench/connect.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "client/payload_malloc.h"
#include "tiers/base/status_macros.h"
#include "tools/bench/operation.h"

namespace kvkeep::bench {

absl::StatusOr<std::unique_ptr<client::Client>> ConnectTo(const ClientTarget& target,
                                                          std::string client_name) {
  client::TuneMallocForPayloads();
  const client::PathChoice choice = target.path == "grpc"    ? client::PathChoice::kGrpc
                                    : target.path == "local" ? client::PathChoice::kLocal
                                                             : client::PathChoice::kAuto;
  KVKEEP_ASSIGN_OR_RETURN(auto connected,
                          client::Client::Connect({.endpoint = target.endpoint,
                                                   .client_name = std::move(client_name),
                                                   .default_deadline = kCallDeadline,
                                                   .path = choice,
                                                   .local_socket = target.local_socket}));
  if (!connected->connected()) return connected->GetServerInfo().status();
  return connected;
}

client::NamespaceSpec NamespaceOf(const ClientTarget& target) {
  return {.model = absl::StrCat("bench ", target.seed), .dtype = "bytes", .tokens_per_chunk = 256};
}

}  // namespace kvkeep::bench
