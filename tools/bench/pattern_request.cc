#include "tools/bench/pattern_request.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/kvkeep/plan_cost.h"
#include "tools/kvkeep/plan_models.h"

namespace kvkeep::bench {
namespace {

// What is not asked for. Each pattern, whole and quick, says what is other than this; what it has
// no use for stays.
struct Defaults {
  double rate, seconds;
  uint32_t users, workers = 8, depth = 16;
  uint64_t tokens_per_chunk;
  uint64_t system_prompt_tokens = 1'000, history_tokens = 4'000, round_tokens = 100;
  uint32_t document_chunks_min = 12, document_chunks_max = 22;
  double burst_every_seconds = 5;
};
constexpr Defaults kPm1753{.rate = 40, .seconds = 30, .users = 280, .tokens_per_chunk = 16};
constexpr Defaults kQuickPm1753{.rate = 100,
                                .seconds = 0.5,
                                .users = 48,
                                .workers = 2,
                                .depth = 4,
                                .tokens_per_chunk = 2,
                                .document_chunks_min = 4,
                                .document_chunks_max = 8,
                                .burst_every_seconds = 0.25};
constexpr Defaults kSessions{.rate = 4, .seconds = 60, .users = 80, .tokens_per_chunk = 256};
constexpr Defaults kQuickSessions{.rate = 60,
                                  .seconds = 0.5,
                                  .users = 8,
                                  .workers = 2,
                                  .depth = 4,
                                  .tokens_per_chunk = 2,
                                  .system_prompt_tokens = 4,
                                  .history_tokens = 16,
                                  .round_tokens = 1};

const Defaults& DefaultsOf(PatternKind kind, bool quick) {
  if (kind == PatternKind::kPm1753) return quick ? kQuickPm1753 : kPm1753;
  return quick ? kQuickSessions : kSessions;
}

template <typename T>
T Or(T asked, T otherwise) {
  return asked == 0 ? otherwise : asked;
}

}  // namespace

absl::StatusOr<PatternModel> ModelOf(const PatternRequest& request) {
  KVKEEP_ASSIGN_OR_RETURN(const tools::PlanModel model, tools::FindPlanModel(request.model));
  KVKEEP_ASSIGN_OR_RETURN(const tools::PlanGpu gpu, tools::FindPlanGpu(request.gpu));
  return PatternModel{
      .kv_bytes_per_token = Or(request.kv_bytes_per_token, model.kv_bytes_per_token),
      .prefill_tokens_per_second =
          Or(request.prefill_tokens_per_second,
             tools::PrefillTokensPerSecond(model.active_parameters, model.gpus, gpu.bf16_tflops,
                                           model.mfu))};
}

absl::StatusOr<std::vector<PatternJob>> JobsOf(const PatternRequest& request) {
  KVKEEP_ASSIGN_OR_RETURN(const PatternKind kind, ParsePattern(request.name));
  KVKEEP_ASSIGN_OR_RETURN(const PatternModel model, ModelOf(request));
  const Defaults& defaults = DefaultsOf(kind, request.quick);
  const uint64_t tokens = Or(request.tokens_per_chunk, defaults.tokens_per_chunk);
  const double chunk_bytes = model.kv_bytes_per_token * static_cast<double>(tokens);
  if (chunk_bytes < 1 || chunk_bytes > static_cast<double>(kMaxPayloadBytes)) {
    return absl::InvalidArgumentError(absl::StrCat("tokens-per-chunk: ", tokens,
                                                   " tokens of this model are ", chunk_bytes,
                                                   " bytes; chunks are of 1 byte to 256 MiB"));
  }
  PatternJob job{
      .chunk_bytes = static_cast<uint64_t>(chunk_bytes),
      .get_chunks = request.get_chunks,
      .depth = Or(request.depth, defaults.depth),
      .recompute_seconds_per_chunk = static_cast<double>(tokens) / model.prefill_tokens_per_second};
  PatternOptions& pattern = job.pattern;
  pattern.kind = kind;
  pattern.users = Or(request.users, defaults.users);
  pattern.workers = std::min(Or(request.workers, defaults.workers), pattern.users);
  pattern.seconds = Or(request.seconds, defaults.seconds);
  pattern.seed = request.seed;
  pattern.document_chunks_min = defaults.document_chunks_min;
  pattern.document_chunks_max = defaults.document_chunks_max;
  pattern.burst_every_seconds = defaults.burst_every_seconds;
  pattern.rounds = request.rounds;
  pattern.tokens_per_chunk = tokens;
  pattern.system_prompt_tokens = Or(request.system_prompt_tokens, defaults.system_prompt_tokens);
  pattern.history_tokens_min = Or(request.history_tokens, defaults.history_tokens);
  pattern.history_tokens_max = pattern.history_tokens_min + pattern.history_tokens_min / 2;
  pattern.question_tokens = pattern.answer_tokens = defaults.round_tokens;
  std::vector<PatternJob> jobs;
  for (const double rate :
       request.rates.empty() ? std::vector<double>{defaults.rate} : request.rates) {
    job.pattern.requests_per_second = rate;
    KVKEEP_RETURN_IF_ERROR(job.pattern.Validate());
    jobs.push_back(job);
  }
  return jobs;
}

uint64_t WorkingSetBytes(const PatternJob& job, uint64_t chunks) {
  // A header's page before the payload, which takes whole blocks.
  return chunks * (RoundUp(job.chunk_bytes, kBlockBytes) + kBlockBytes);
}

Json ToJson(const PatternRequest& request) {
  return {{"name", request.name},
          {"rates", request.rates},
          {"seconds", request.seconds},
          {"users", request.users},
          {"workers", request.workers},
          {"depth", request.depth},
          {"get_chunks", request.get_chunks},
          {"seed", request.seed},
          {"quick", request.quick},
          {"model", request.model},
          {"gpu", request.gpu},
          {"kv_bytes_per_token", request.kv_bytes_per_token},
          {"prefill_tokens_per_second", request.prefill_tokens_per_second},
          {"tokens_per_chunk", request.tokens_per_chunk},
          {"rounds", request.rounds},
          {"system_prompt_tokens", request.system_prompt_tokens},
          {"history_tokens", request.history_tokens}};
}

}  // namespace kvkeep::bench
