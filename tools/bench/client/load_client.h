// One client of a daemon: it loads chunks, makes the operations of cases and drives them, and plays
// patterns.
#pragma once

#include <cstdint>
#include <string>

#include "tools/bench/client/commands.h"
#include "tools/bench/client/operation.h"

namespace kvkeep::bench {

// Where it connects to, and how; and which one it is of so many that do the same.
struct ClientTarget {
  std::string endpoint;       // "unix:///path" or host:port
  std::string local_socket;   // empty: the client library's default
  std::string path = "auto";  // auto, grpc, local
  uint64_t seed = 1;
  uint64_t pool_bytes = 0;  // of payloads to put; 0: this client puts nothing but a load
  uint32_t number = 0, clients = 1;

  KVKEEP_FIELDS(endpoint, local_socket, path, seed, pool_bytes, number, clients)
};

// "connect" {ClientTarget}: {path, why}. It comes first, once.
// "load" {first, count, size, no_g3}: puts those chunks, for gets and lookups.
// "prepare" {case: CaseSpec}: {prepared}, by which "run" knows it.
// "run" {prepared, seconds, max_ops, verify}: Measured.
// "open gpu" {path, call_bytes, mount_dir}: {device, daemon_bytes}; before a case with runs there.
// "copy plain" {to_gpu, bytes, seconds}: Measured, of copies in one piece between GPU and host.
void AddLoadCommands(Commands* commands);

// A pattern's worker, an engine with its share of the users and as many threads as requests may be
// under way (pattern_client.cc). `context`, of a connected client, outlives the commands.
// "prepare pattern" {job: PatternJob}. "store before" {first, count}: of the chunks that are there
// before. "recall alone" {requests}, "play" {begin_at}: PatternMeasured.
void AddPatternCommands(ClientContext* context, Commands* commands);

}  // namespace kvkeep::bench
