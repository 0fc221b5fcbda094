#include "tools/bench/pattern.h"

#include <absl/container/flat_hash_set.h>
#include <absl/strings/str_cat.h>

#include <cmath>

#include "tiers/base/check.h"
#include "tools/kvkeep/generator.h"

namespace kvkeep::bench {
namespace {

constexpr int kPositionBits = 24;  // of a chunk's number; the others say which run

absl::Status Bad(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

}  // namespace

absl::string_view PatternName(PatternKind kind) {
  return kind == PatternKind::kPm1753 ? "pm1753" : "sessions";
}

absl::StatusOr<PatternKind> ParsePattern(absl::string_view name) {
  for (const PatternKind kind : {PatternKind::kPm1753, PatternKind::kSessions}) {
    if (PatternName(kind) == name) return kind;
  }
  return Bad("pattern", absl::StrCat("no '", name, "': pm1753 or sessions"));
}

bool IsClosedLoop(PatternKind kind) { return kind == PatternKind::kSessions; }

absl::Status PatternOptions::Validate() const {
  if (users == 0 || users > kMaxPatternUsers) return Bad("users", "1 to 100,000");
  if (workers == 0 || workers > users) return Bad("clients", "at least 1, no more than users");
  if (requests_per_second <= 0 || seconds <= 0) return Bad("rate and seconds", "above 0");
  if (requests_per_second * seconds * burst_rate > static_cast<double>(kMaxPatternRequests)) {
    return Bad("rate and seconds", absl::StrCat("more than ", kMaxPatternRequests, " requests"));
  }
  if (document_chunks_min == 0 || document_chunks_max < document_chunks_min) {
    return Bad("document_chunks", "at least 1, and no less at most than at least");
  }
  if (document_chunks_max >= 1u << (kPositionBits - 1)) return Bad("document_chunks", "too many");
  if (written_share < 0 || written_share > 0.5) return Bad("written_share", "0 to 0.5");
  if (burst_every_seconds <= 0 || burst_share < 0 || burst_share * burst_rate >= 1) {
    return Bad("bursts", "take the whole load");
  }
  if (burst_requests_at_once == 0) return Bad("burst_requests_at_once", "at least 1");
  if (rounds == 0 || tokens_per_chunk == 0) return Bad("rounds, tokens_per_chunk", "at least 1");
  if (history_tokens_max < history_tokens_min) return Bad("history", "less at most than at least");
  const uint64_t most =
      system_prompt_tokens + history_tokens_max + rounds * (question_tokens + answer_tokens);
  if (most / tokens_per_chunk == 0 || most / tokens_per_chunk >= 1u << kPositionBits) {
    return Bad("history", "a prompt is of less than a chunk, or of too many");
  }
  return absl::OkStatus();
}

Json ToJson(const PatternOptions& o) {
  Json json = {{"kind", std::string(PatternName(o.kind))},
               {"users", o.users},
               {"workers", o.workers},
               {"requests_per_second", o.requests_per_second},
               {"seconds", o.seconds},
               {"seed", o.seed}};
  if (o.kind == PatternKind::kPm1753) {
    json["document_chunks"] = {o.document_chunks_min, o.document_chunks_max};
    json["written_share"] = o.written_share;
    json["burst_every_seconds"] = o.burst_every_seconds;
    json["burst_share"] = o.burst_share;
    json["burst_rate"] = o.burst_rate;
    json["burst_requests_at_once"] = o.burst_requests_at_once;
  } else {
    json["rounds"] = o.rounds;
    json["tokens_per_chunk"] = o.tokens_per_chunk;
    json["system_prompt_tokens"] = o.system_prompt_tokens;
    json["history_tokens"] = {o.history_tokens_min, o.history_tokens_max};
    json["question_tokens"] = o.question_tokens;
    json["answer_tokens"] = o.answer_tokens;
  }
  return json;
}

PatternOptions PatternFromJson(const Json& json) {
  PatternOptions o;
  o.kind = *ParsePattern(json.at("kind").get<std::string>());
  o.users = json.at("users");
  o.workers = json.at("workers");
  o.requests_per_second = json.at("requests_per_second");
  o.seconds = json.at("seconds");
  o.seed = json.at("seed");
  if (o.kind == PatternKind::kPm1753) {
    o.document_chunks_min = json.at("document_chunks").at(0);
    o.document_chunks_max = json.at("document_chunks").at(1);
    o.written_share = json.at("written_share");
    o.burst_every_seconds = json.at("burst_every_seconds");
    o.burst_share = json.at("burst_share");
    o.burst_rate = json.at("burst_rate");
    o.burst_requests_at_once = json.at("burst_requests_at_once");
  } else {
    o.rounds = json.at("rounds");
    o.tokens_per_chunk = json.at("tokens_per_chunk");
    o.system_prompt_tokens = json.at("system_prompt_tokens");
    o.history_tokens_min = json.at("history_tokens").at(0);
    o.history_tokens_max = json.at("history_tokens").at(1);
    o.question_tokens = json.at("question_tokens");
    o.answer_tokens = json.at("answer_tokens");
  }
  return o;
}

uint64_t Pattern::DistinctChunks() const {
  absl::flat_hash_set<uint64_t> all(before.begin(), before.end());
  for (const PromptRequest& request : requests) {
    all.insert(request.prompt.begin(), request.prompt.end());
    all.insert(request.answer.begin(), request.answer.end());
  }
  return all.size();
}

Pattern MakePattern(const PatternOptions& options) {
  KVKEEP_CHECK(options.Validate().ok());
  return options.kind == PatternKind::kPm1753 ? MakePm1753(options) : MakeSessions(options);
}

uint64_t ChunkNumber(uint64_t run, uint64_t position) {
  KVKEEP_CHECK(position < 1u << kPositionBits);
  return run << kPositionBits | position;
}

uint64_t PositionOf(uint64_t chunk) { return chunk & ((1u << kPositionBits) - 1); }

double Draws::Share() {
  // 53 bits: as many as a double has.
  return static_cast<double>(tools::MixIds(seed_, drawn_++) >> 11) * 0x1p-53;
}

uint64_t Draws::Between(uint64_t lo, uint64_t hi) {
  return lo + static_cast<uint64_t>(Share() * static_cast<double>(hi - lo + 1));
}

double Draws::Gap(double mean) { return -mean * std::log1p(-Share()); }

}  // namespace kvkeep::bench
