#include "tools/bench/client/pattern_request.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/kvkeep/plan_cost.h"
#include "tools/kvkeep/plan_models.h"

namespace kvkeep::bench {
namespace {

// Returns the default job.
PatternJob UsualJob(PatternKind kind, bool quick) {
  PatternJob job{.pattern = {.kind = kind}};
  PatternOptions& usual = job.pattern;
  const bool pm1753 = kind == PatternKind::kPm1753;
  usual.users = pm1753 ? 280 : 80;
  usual.requests_per_second = pm1753 ? 40 : 4;
  usual.seconds = pm1753 ? 30 : 60;
  usual.tokens_per_chunk = pm1753 ? 16 : 256;
  if (!quick) return job;
  job.depth = 4;
  usual.workers = 2;
  usual.users = pm1753 ? 48 : 8;
  usual.requests_per_second = pm1753 ? 100 : 60;
  usual.seconds = 0.5;
  usual.tokens_per_chunk = 2;
  if (pm1753) {
    usual.document_chunks = {4, 8};
    usual.burst_every_seconds = 0.25;
  } else {
    usual.system_prompt_tokens = 4;
    usual.history_tokens = {16, 24};
    usual.question_tokens = usual.answer_tokens = 1;
  }
  return job;
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
  KVKEEP_ASSIGN_OR_RETURN(const PatternModel model, ModelOf(request));
  PatternJob job = UsualJob(PatternNamed(request.name), request.quick);
  PatternOptions& pattern = job.pattern;
  pattern.tokens_per_chunk = Or(request.tokens_per_chunk, pattern.tokens_per_chunk);
  const auto tokens = static_cast<double>(pattern.tokens_per_chunk);
  const double chunk_bytes = model.kv_bytes_per_token * tokens;
  if (chunk_bytes < 1 || chunk_bytes > static_cast<double>(kMaxPayloadBytes)) {
    return absl::InvalidArgumentError(absl::StrCat("tokens-per-chunk: ", tokens,
                                                   " tokens of this model are ", chunk_bytes,
                                                   " bytes; chunks are of 1 byte to 256 MiB"));
  }
  job.chunk_bytes = static_cast<uint64_t>(chunk_bytes);
  job.get_chunks = request.get_chunks;
  job.depth = Or(request.depth, job.depth);
  job.recompute_seconds_per_chunk = tokens / model.prefill_tokens_per_second;
  pattern.users = Or(request.users, pattern.users);
  pattern.workers = std::min(Or(request.workers, pattern.workers), pattern.users);
  pattern.seconds = Or(request.seconds, pattern.seconds);
  pattern.seed = request.seed;
  pattern.rounds = request.rounds;
  pattern.system_prompt_tokens = Or(request.system_prompt_tokens, pattern.system_prompt_tokens);
  if (const uint64_t history = request.history_tokens; history > 0) {
    pattern.history_tokens = {history, history + history / 2};
  }
  std::vector<PatternJob> jobs;
  for (const double rate :
       request.rates.empty() ? std::vector{pattern.requests_per_second} : request.rates) {
    pattern.requests_per_second = rate;
    KVKEEP_RETURN_IF_ERROR(pattern.Validate());
    jobs.push_back(job);
  }
  return jobs;
}

uint64_t WorkingSetBytes(const PatternJob& job, uint64_t chunks) {
  // A header's page before the payload, which takes whole blocks.
  return chunks * (RoundUp(job.chunk_bytes, kBlockBytes) + kBlockBytes);
}

namespace {

Json DescribeJob(const PatternJob& job) {
  const Pattern pattern = MakePattern(job.pattern);
  uint64_t asked = 0;
  for (const PromptRequest& request : pattern.requests) asked += request.prompt.size();
  const uint64_t distinct = pattern.DistinctChunks();
  return {{"job", FieldsToJson(job)},
          {"pattern", ToReport(job.pattern)},
          {"closed_loop", IsClosedLoop(job.pattern.kind)},
          {"asked_chunks", asked},
          {"chunks_before", pattern.before.size()},
          {"distinct_chunks", distinct},
          {"working_set_bytes", WorkingSetBytes(job, distinct)},
          {"chunk_in_tier_bytes", WorkingSetBytes(job, 1)}};
}

}  // namespace

void AddPatternRequestCommands(Commands* commands) {
  commands->Add("pattern jobs", [](const Json& command) -> absl::StatusOr<Json> {
    const auto request = FieldsFromJson<PatternRequest>(command.at("request"));
    KVKEEP_ASSIGN_OR_RETURN(const PatternModel model, ModelOf(request));
    KVKEEP_ASSIGN_OR_RETURN(const std::vector<PatternJob> jobs, JobsOf(request));
    Json described = Json::array();
    for (const PatternJob& job : jobs) described.push_back(DescribeJob(job));
    return Json{{"model", FieldsToJson(model)}, {"jobs", std::move(described)}};
  });
}

}  // namespace kvkeep::bench
