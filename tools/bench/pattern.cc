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

absl::Status PatternOptions::Validate() const {
  if (users == 0 || users > kMaxPatternUsers) return Bad("users", "1 to 100,000");
  if (workers == 0 || workers > users) return Bad("clients", "at least 1, no more than users");
  if (requests_per_second <= 0 || seconds <= 0) return Bad("rate and seconds", "above 0");
  if (requests_per_second * seconds * burst_rate > static_cast<double>(kMaxPatternRequests)) {
    return Bad("rate and seconds", absl::StrCat("more than ", kMaxPatternRequests, " requests"));
  }
  const auto& [least, most] = document_chunks;
  if (least == 0 || most < least) {
    return Bad("document_chunks", "at least 1, and no less at most than at least");
  }
  if (most >= 1u << (kPositionBits - 1)) return Bad("document_chunks", "too many");
  if (written_share < 0 || written_share > 0.5) return Bad("written_share", "0 to 0.5");
  if (burst_every_seconds <= 0 || burst_share < 0 || burst_share * burst_rate >= 1) {
    return Bad("bursts", "take the whole load");
  }
  if (burst_requests_at_once == 0) return Bad("burst_requests_at_once", "at least 1");
  if (rounds == 0 || tokens_per_chunk == 0) return Bad("rounds, tokens_per_chunk", "at least 1");
  if (history_tokens[1] < history_tokens[0]) return Bad("history", "less at most than at least");
  const uint64_t prompt =
      system_prompt_tokens + history_tokens[1] + rounds * (question_tokens + answer_tokens);
  if (prompt / tokens_per_chunk == 0 || prompt / tokens_per_chunk >= 1u << kPositionBits) {
    return Bad("history", "a prompt is of less than a chunk, or of too many");
  }
  return absl::OkStatus();
}

Json ToReport(const PatternOptions& options) {
  static const char* const kOfPm1753[] = {"document_chunks", "written_share",
                                          "burst_every_seconds", "burst_share",
                                          "burst_rate", "burst_requests_at_once"};
  static const char* const kOfSessions[] = {"rounds", "tokens_per_chunk",
                                            "system_prompt_tokens", "history_tokens",
                                            "question_tokens", "answer_tokens"};
  Json json = FieldsToJson(options);
  const bool sessions = options.kind == PatternKind::kSessions;
  for (const char* other : sessions ? kOfPm1753 : kOfSessions) json.erase(other);
  return json;
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
