// Options of kvkeep-bench, as given on the command line and checked. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/json_fields.h"

namespace kvkeep::bench {

struct Options {
  std::string verb;  // get, put, lookup, mixed, pieces, baseline, table, cpu; none with a pattern,
                     // gpu with a path of one

  // The daemon: one that runs, or one to start.
  std::string endpoint;
  std::string admin_endpoint;  // empty: nothing is known of the daemon
  std::string local_socket;
  std::string path = "auto";
  int daemon_pid = 0;
  std::string daemon;
  std::string scratch_dir;
  std::string arena_dir, arena_readonly_dir;
  uint64_t g2_bytes = 2ull << 30;
  uint64_t g3_bytes = 0;
  int copy_threads = 0;

  // The load.
  std::vector<uint64_t> sizes = {4ull << 20};
  uint32_t batch = 1;
  uint32_t depth = 1;
  uint32_t clients = 1;
  double seconds = 1;  // of one round
  uint64_t ops = 0;    // of one round and client; 0: no limit
  int rounds = 9;
  uint64_t keys = 64;
  uint64_t table_chunks = 0;  // small chunks put first
  std::vector<uint32_t> mix = {8, 1, 1};
  bool verify = true;
  // On the paths of a GPU: where chunks are got from, "g2" or "g3", and how they lie there.
  std::string tier = "g2";
  std::vector<uint64_t> run_sizes = {4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20};
  std::vector<uint32_t> adjacent = {1, 16};
  // What copies go between and what puts are made of: to be cold, more than the last-level cache.
  uint64_t region_bytes = 0;  // 0: four times that, at least 256 MiB
  uint64_t seed = 1;

  bool quick = false;                        // table: everything small
  std::vector<std::string> sections;         // table: only these; empty: all
  uint64_t lookup_table_chunks = 1'000'000;  // table: the large one
  bool json = false;
  std::string json_file;  // where to; empty: instead of the text

  // What a report says of them.
  KVKEEP_FIELDS(verb, endpoint, path, daemon, arena_dir, g2_bytes, g3_bytes, copy_threads,
                sizes, tier, run_sizes, adjacent, batch, depth, clients, seconds, ops, rounds, keys,
                table_chunks, mix, verify, region_bytes, seed, quick, sections, lookup_table_chunks)
};

}  // namespace kvkeep::bench
