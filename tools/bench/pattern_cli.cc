#include "tools/bench/pattern_cli.h"

namespace kvkeep::bench {
namespace {

constexpr const char* kGroup = "Patterns of load";

}  // namespace

void AddPatternOptions(CLI::App& app, PatternRequest* request) {
  PatternRequest& r = *request;
  const auto add = [&app](const char* name, auto& value, const char* what) {
    return app.add_option(name, value, what)->group(kGroup);
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

}  // namespace kvkeep::bench
