#include "tools/bench/bench_cli.h"

#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <functional>

#include "tiers/base/units.h"
#include "tools/bench/cases.h"
#include "tools/bench/gpu_memory.h"
#include "tools/bench/table.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::bench {
namespace {

enum ExitCode : int { kDone = 0, kFailed = 1, kUsage = 2, kMissed = 3 };

constexpr int kMaxRounds = 1000;
constexpr uint64_t kQuickRegionBytes = 64ull << 20;
constexpr double kMaxSeconds = 3600;
constexpr uint64_t kCallsInG2 = 4, kDataOfG2 = 3, kG3OfData = 2;
constexpr uint64_t kLeastTierBytes = 64ull << 20;

// Sizes as people write them, kept as text until all is parsed.
struct Texts {
  std::string sizes = "4MiB";
  std::string g2 = "2GiB";
  std::string g3;
  std::string region;
  std::string run_sizes = "4KiB,32KiB,256KiB,1MiB,4MiB";
  bool fail_on_missed = false;
  PatternRequest pattern;
};

std::string CheckSizes(const std::string& text) {
  return std::string(tools::ParseChunkSizes(text).status().message());
}

std::string CheckSize(const std::string& text) { return text.empty() ? "" : tools::BadSize(text); }

void AddDaemonOptions(CLI::App& app, Options& o, Texts& texts) {
  app.add_option("--endpoint", o.endpoint, "the daemon's gRPC socket (env KVKEEP_ENDPOINT)");
  app.add_option("--admin", o.admin_endpoint, "its admin socket (env KVKEEP_ADMIN)");
  app.add_option("--local-socket", o.local_socket, "its socket of the local path");
  app.add_option("--path", o.path,
                 "auto: local when it is to be had; cuda-ipc, pinned: without a verb, puts from a "
                 "GPU and gets to it, by the daemon or by the client itself")
      ->check(CLI::IsMember({"auto", "grpc", "local", "cuda-ipc", "pinned"}));
  app.add_option("--daemon-pid", o.daemon_pid, "whose CPU time counts; 0: as its status says");
  app.add_option("--daemon", o.daemon, "start this kvkeepd instead of using one that runs")
      ->check(CLI::ExistingFile);
  app.add_option("--scratch", o.scratch_dir, "where its files lie; G3's device is there too")
      ->check(CLI::ExistingDirectory);
  app.add_option("--arena-dir", o.arena_dir, "mount of its arena; without: memfd");
  app.add_option("--arena-readonly-dir", o.arena_readonly_dir, "read-only bind mount of that");
  app.add_option("--g2", texts.g2, "memory of the started daemon")->check(CheckSize);
  app.add_option("--g3", texts.g3, "disk of the started daemon; without: none")->check(CheckSize);
  app.add_option("--copy-threads", o.copy_threads, "of the started daemon; 0: its default");
}

void AddLoadOptions(CLI::App& app, Options& o, Texts& texts) {
  app.add_option("--size", texts.sizes, "payload of a chunk; several with commas: 4MiB,32MiB")
      ->check(CheckSizes);
  app.add_option("--batch", o.batch, "keys of a call")->check(CLI::Range(1u, 65536u));
  app.add_option("--run-size", texts.run_sizes,
                 "paths of a GPU: how long the runs of a chunk are there; several with commas")
      ->check(CheckSizes);
  app.add_option("--tier", o.tier,
                 "path cuda-ipc: where the chunks are that are got: g2, DRAM; g3, NVMe alone, "
                 "beside fio on the drive of --scratch, every byte compared; wants --daemon")
      ->check(CLI::IsMember({"g2", "g3"}));
  app.add_option("--adjacent", o.adjacent,
                 "paths of a GPU: runs without a gap between them; several with commas")
      ->delimiter(',')
      ->check(CLI::Range(1u, 65536u));
  app.add_option("--depth", o.depth, "calls in flight per client")
      ->check(CLI::Range(1u, kMaxDepth));
  app.add_option("--clients", o.clients, "processes")->check(CLI::Range(1u, kMaxClients));
  app.add_option("--seconds", o.seconds, "of measured time in a round")
      ->check(CLI::Range(0.001, kMaxSeconds));
  app.add_option("--ops", o.ops, "calls of each client in a round; 0: no limit");
  app.add_option("--rounds", o.rounds, "of each case and its baselines")
      ->check(CLI::Range(1, kMaxRounds));
  app.add_option("--keys", o.keys, "chunks that are there to be got");
  app.add_option("--table-chunks", o.table_chunks, "small chunks put first; lookups are of these");
  app.add_option("--mix", o.mix, "weights of get, put and lookup in mixed")
      ->delimiter(',')
      ->expected(3);
  app.add_flag("--verify,!--no-verify", o.verify,
               "compare what was got or put with what it must be, outside of the measured time");
  app.add_option("--region", texts.region,
                 "memory that copies go between and puts are made of; default: four times the "
                 "last-level cache, at least 256 MiB, so that it is cold")
      ->check(CheckSize);
  app.add_option("--seed", o.seed, "other seed: other keys and bytes");
  app.add_flag("--quick", o.quick,
               "table, patterns: small and short: that it works, not what it can do");
  app.add_flag("--fail-on-missed", texts.fail_on_missed,
               "table, patterns, paths of a GPU: exit code 3 when a line is missed");
  app.add_option(
         "--json", o.json_file,
         "all numbers and the options as JSON, instead of text; with a path: there, and the "
         "text as ever")
      ->expected(0, 1);
}

void AddPatternOptions(CLI::App& app, PatternRequest& r) {
  const auto add = [&app](const char* name, auto& value, const char* what) {
    return app.add_option(name, value, what)->group("Patterns of load");
  };
  add("--pattern", r.name,
      "instead of a verb: pm1753 (280 users, 92 % reads, open loop, bursts) or sessions "
      "(multi-round questions, closed loop)")
      ->check(CLI::IsMember({"pm1753", "sessions"}));
  add("--rate", r.rates, "requests a second of all users together (QPS); several with commas")
      ->delimiter(',')
      ->check(CLI::Range(1e-3, 1e6));
  add("--users", r.users, "0: 280 or 80")->check(CLI::Range(0u, kMaxPatternUsers));
  add("--model", r.model, "whose KV chunks are; one that tools/kvkeep/models.json knows");
  add("--gpu", r.gpu, "that would recompute them; one that models.json knows");
  add("--kv-bytes-per-token", r.kv_bytes_per_token, "instead of the model's")
      ->check(CLI::Range(0.0, 1e9));
  add("--prefill-rate", r.prefill_tokens_per_second,
      "tokens a second, as measured, instead of the model's on that GPU")
      ->check(CLI::Range(0.0, 1e9));
  add("--tokens-per-chunk", r.tokens_per_chunk, "0: 16 (pm1753) or 256 (sessions)")
      ->check(CLI::Range(0u, 1'000'000u));
  add("--get-chunks", r.get_chunks, "of a call over gRPC")->check(CLI::Range(1u, 4096u));
  add("--session-rounds", r.rounds, "sessions: of a user")->check(CLI::Range(1u, 1000u));
  add("--system-prompt", r.system_prompt_tokens, "sessions: tokens that all share; 0: 1,000")
      ->check(CLI::Range(0u, 1'000'000u));
  add("--history", r.history_tokens,
      "sessions: tokens of a user, up to half as many more; "
      "0: 4,000")
      ->check(CLI::Range(0u, 10'000'000u));
}

void AddVerbs(CLI::App& app, Options& o) {
  const std::vector<std::pair<std::string, std::string>> verbs = {
      {"get", "chunks that are in memory"},
      {"put", "chunks under fresh keys; what was there is evicted"},
      {"lookup", "whether keys are there, without a lease"},
      {"mixed", "gets, puts and lookups"},
      {"pieces", "one chunk at a time until its last piece is readable: for chunks on NVMe"},
      {"baseline", "only what the machine can do without kvkeep"},
      {"cpu", "CPU seconds a GB on each path, on both sides; wants --daemon"}};
  for (const auto& [name, what] : verbs) {
    app.add_subcommand(name, what)->callback([&o, name = name] { o.verb = name; });
  }
  CLI::App* table = app.add_subcommand(
      "table", "every figure that a daemon must hold, with its baseline; wants --daemon");
  table->callback([&o] { o.verb = "table"; });
  table->add_option("--section", o.sections, "only these")
      ->delimiter(',')
      ->check(CLI::IsMember(TableSections()));
  table->add_option("--lookup-chunks", o.lookup_table_chunks, "of the large table");
}

// What a pattern has defaults of its own for; they are told apart by whether they were said.
std::string FinishPattern(const CLI::App& app, Options& o, PatternRequest& request) {
  const auto said = [&app](const char* option) { return app.count(option) > 0; };
  if (said("--seconds")) request.seconds = o.seconds;
  if (said("--clients")) request.workers = o.clients;
  if (said("--depth")) request.depth = o.depth;
  if (!said("--g2")) o.g2_bytes = 0;
  request.seed = o.seed;
  request.quick = o.quick;
  return std::string(JobsOf(request).status().message());
}

// A path of a GPU stands for a verb: it measures both ways. Empty: all is well.
std::string FinishGpu(Options& o, const Texts& texts) {
  if (o.tier == "g3" && (o.path != "cuda-ipc" || o.daemon.empty())) {
    return "--tier g3 goes with --path cuda-ipc and --daemon PATH";
  }
  if (o.tier == "g3" && !o.verify) {
    return "--tier g3 compares every byte: it does not go with --no-verify";
  }
  if (!GpuWayOf(o.path)) return "";
  if (!o.verb.empty() || !texts.pattern.name.empty()) {
    return absl::StrCat("--path ", o.path, " goes without a verb: it measures puts and gets");
  }
  if (o.clients != 1 || o.depth != 1) {
    return absl::StrCat("--path ", o.path, ": --clients and --depth must be 1");
  }
  o.verb = "gpu";
  o.run_sizes = *tools::ParseChunkSizes(texts.run_sizes);
  return "";
}

// What gets from NVMe are of, as far as it was not said: a G2 with room for four calls (all gets to
// GPUs hold at most a quarter of it), three times as much data, taken in turn, a G3 that is never
// near full.
void FinishG3(const CLI::App& app, Options& o) {
  const auto [smallest, largest] = std::minmax_element(o.sizes.begin(), o.sizes.end());
  if (app.count("--g2") == 0) {
    o.g2_bytes = std::max(kCallsInG2 * o.batch * *largest, kLeastTierBytes);
  }
  if (app.count("--keys") == 0) o.keys = DivideRoundUp(kDataOfG2 * o.g2_bytes, *smallest);
  if (app.count("--g3") == 0) o.g3_bytes = std::max(kG3OfData * o.keys * *largest, kLeastTierBytes);
}

// What cannot be said to CLI11. Empty: all is well.
std::string Finish(const CLI::App& app, Options& o, const Texts& texts) {
  if (std::string wrong = FinishGpu(o, texts); !wrong.empty()) return wrong;
  o.json = app.count("--json") > 0;
  if (o.verb.empty() == texts.pattern.name.empty()) {
    return "say one of a verb and --pattern";
  }
  o.sizes = *tools::ParseChunkSizes(texts.sizes);
  o.g2_bytes = *tools::ParseSize(texts.g2);
  if (o.quick) o.region_bytes = kQuickRegionBytes;
  if (!texts.region.empty()) o.region_bytes = *tools::ParseSize(texts.region);
  if (!texts.g3.empty()) o.g3_bytes = *tools::ParseSize(texts.g3);
  if (o.tier == "g3") FinishG3(app, o);
  if ((o.verb == "table" || o.verb == "cpu") && o.daemon.empty()) {
    return o.verb + ": say which kvkeepd to start: --daemon PATH";
  }
  if (o.arena_dir.empty() != o.arena_readonly_dir.empty()) {
    return "--arena-dir and --arena-readonly-dir: both or none";
  }
  if (o.verb == "pieces" && (o.batch != 1 || o.depth != 1)) {
    return "pieces: --batch and --depth must be 1";
  }
  if (o.daemon.empty()) {
    if (o.endpoint.empty()) {
      o.endpoint = tools::DefaultSocket("KVKEEP_ENDPOINT", "kvkeep.sock");
    }
    if (o.admin_endpoint.empty()) {
      o.admin_endpoint = tools::DefaultAdminSocket();
    }
  }
  return "";
}

int Fail(const absl::Status& status, std::ostream& err) {
  err << "kvkeep-bench: " << status.message() << "\n";
  return kFailed;
}

// False: the file could not be written.
bool Deliver(const Options& options, const Json& json, const std::string& text, std::ostream& out,
             std::ostream& err) {
  if (!options.json || !options.json_file.empty()) out << text;
  if (!options.json) return true;
  if (options.json_file.empty()) {
    out << json.dump(2) << "\n";
    return true;
  }
  std::ofstream file(options.json_file);
  file << json.dump(2) << "\n";
  file.close();
  if (!file.good()) err << "kvkeep-bench: cannot write " << options.json_file << "\n";
  return file.good();
}

// Of a report of either kind.
template <typename Whole>
int Judge(const Options& options, bool fail_on_missed, const Whole& report, const std::string& text,
          std::ostream& out, std::ostream& err) {
  const bool delivered = Deliver(options, ToJson(report), text, out, err);
  if (!delivered || !report.sound()) return kFailed;
  return fail_on_missed && !report.all_ok() ? kMissed : kDone;
}

int Run(const Options& options, const Texts& texts, std::ostream& out, std::ostream& err,
        bool show_progress) {
  const Progress progress = [&](const std::string& what) {
    if (show_progress) err << "\r\033[K" << what << std::flush;
  };
  if (options.verb.empty()) {
    const absl::StatusOr<PatternReport> played = RunPattern(options, texts.pattern, progress);
    progress("");
    if (!played.ok()) return Fail(played.status(), err);
    return Judge(options, texts.fail_on_missed, *played, FormatPattern(*played), out, err);
  }
  const absl::StatusOr<Report> report = options.verb == "table" ? RunTable(options, progress)
                                        : options.verb == "cpu" ? RunCpuCosts(options, progress)
                                                                : RunCases(options, progress);
  progress("");
  if (!report.ok()) return Fail(report.status(), err);
  return Judge(options, texts.fail_on_missed, *report, FormatReport(*report), out, err);
}

}  // namespace

int RunBench(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err,
             bool show_progress) {
  Options options;
  Texts texts;
  CLI::App app("Load on a kvkeep daemon and, beside it, what the machine can do without one.",
               "kvkeep-bench");
  app.option_defaults()->always_capture_default();
  AddDaemonOptions(app, options, texts);
  AddLoadOptions(app, options, texts);
  AddPatternOptions(app, texts.pattern);
  app.require_subcommand(0, 1);
  app.fallthrough();  // options may follow the verb
  AddVerbs(app, options);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return app.exit(error, out, err) == 0 ? kDone : kUsage;  // 0: help was asked for
  }
  std::string wrong = Finish(app, options, texts);
  if (wrong.empty() && options.verb.empty()) wrong = FinishPattern(app, options, texts.pattern);
  if (!wrong.empty()) {
    err << "kvkeep-bench: " << wrong << "\n";
    return kUsage;
  }
  return Run(options, texts, out, err, show_progress);
}

}  // namespace kvkeep::bench
