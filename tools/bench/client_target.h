// ClientTarget: where a client of the benchmark connects to, and how. Plain values.
#pragma once

#include <cstdint>
#include <string>

namespace kvkeep::bench {

struct ClientTarget {
  std::string endpoint;       // "unix:///path" or host:port
  std::string local_socket;   // empty: the client library's default
  std::string path = "auto";  // auto, grpc, local
  uint64_t seed = 1;
  uint64_t pool_bytes = 0;  // of payloads to put; 0: this client puts nothing but a load
};

}  // namespace kvkeep::bench
