// One client of a daemon: it loads chunks, makes the operations of cases and drives them, and plays
// patterns.
#pragma once

#include <cstdint>
#include <string>

#include "tools/bench/client/commands.h"
#include "tools/bench/client/operation.h"

namespace kvkeep::bench {

// A client's connection, and its number among the clients that do the same.
struct ClientTarget {
  std::string endpoint;       // "unix:///path" or host:port
  std::string local_socket;   // empty: the client library's default
  std::string path = "auto";  // auto, grpc, local
  uint64_t seed = 1;
  uint64_t pool_bytes = 0;  // of payloads to put; 0: this client only puts loads
  uint32_t number = 0, clients = 1;

  KVKEEP_FIELDS(endpoint, local_socket, path, seed, pool_bytes, number, clients)
};

// "connect" {ClientTarget}: {path, why}. The first command, once. "load" {first, count, size,
// no_g3}: puts these chunks, for gets and lookups. "prepare" {case: CaseSpec}: {prepared}, the
// case's number for "run". "run" {prepared, seconds, max_ops, verify}: Measured. "open gpu" {path,
// call_bytes, mount_dir}: {device, daemon_bytes}; before a case on the GPU. "copy plain" {to_gpu,
// bytes, seconds}: Measured, of copies in one piece between GPU and host.
void AddLoadCommands(Commands* commands);

// Adds the commands of a pattern's worker: an engine with its share of the users and a thread for
// each request that may be under way (pattern_client.cc). `context`, of a connected client,
// outlives the commands. "prepare pattern" {job: PatternJob}. "store before" {first, count}: stores
// a range of the chunks that are there before the load. "recall alone" {requests}, "play"
// {begin_at}: PatternMeasured.
void AddPatternCommands(ClientContext* context, Commands* commands);

}  // namespace kvkeep::bench
