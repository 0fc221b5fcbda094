#include "tools/bench/options.h"

namespace kvkeep::bench {

Json ToJson(const Options& o) {
  return {{"verb", o.verb},
          {"endpoint", o.endpoint},
          {"path", o.path},
          {"daemon", o.daemon_binary},
          {"arena_dir", o.arena_dir},
          {"g2_bytes", o.g2_bytes},
          {"g3_bytes", o.g3_bytes},
          {"copy_threads", o.copy_threads},
          {"sizes", o.sizes},
          {"tier", o.tier},
          {"run_sizes", o.run_sizes},
          {"adjacent", o.adjacent},
          {"batch", o.batch},
          {"depth", o.depth},
          {"clients", o.clients},
          {"seconds", o.seconds},
          {"ops", o.ops},
          {"rounds", o.rounds},
          {"keys", o.keys},
          {"table_chunks", o.table_chunks},
          {"mix", o.mix},
          {"verify", o.verify},
          {"region_bytes", o.region_bytes},
          {"seed", o.seed},
          {"quick", o.quick},
          {"sections", o.sections},
          {"lookup_table_chunks", o.lookup_table_chunks}};
}

}  // namespace kvkeep::bench
