// Patterns of load as the field describes them: which user asks for which chunks, and when. Pure
// functions of their options and seed, so that all processes make the same requests.
//
// A request is an engine's work for a user's prompt: recall the prompt's chunks in order, as far as
// they are present, compute and store the others, and store the answer's chunks. Chunks are
// numbers; equal numbers are equal chunks.
//
// pm1753 (open loop): the load of a drive behind 280 users on 8 workers. A user's prompt is
// recalled whole, from the first chunk to the last (sequential within a session); users follow one
// another in a shuffled order (interleaved between sessions). Requests come at random, at a given
// rate on average; a fifth of the time is a burst, in which twice the average rate comes, five
// requests at the same moment (five times the queue depth). A user begins with a document, and each
// request adds to it, until the conversation has its full length. Then the user asks anew about the
// same document. Stored chunks are 8 % of all chunks recalled and stored.
//
// sessions (closed loop): multi-round questions and answers, as serving benchmarks play them. All
// users share a system prompt, and each has a history. A request adds a question and an answer.
// After `rounds` requests a new user takes a user's place. Requests come at a rate of all users
// together (QPS); a user never asks before the last answer. The users begin in different rounds,
// and the chunks of their earlier rounds are present.
#pragma once

#include <absl/status/status.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/client/json_fields.h"

namespace kvkeep::bench {

enum class PatternKind { kPm1753, kSessions };
NLOHMANN_JSON_SERIALIZE_ENUM(PatternKind, {{PatternKind::kPm1753, "pm1753"},
                                           {PatternKind::kSessions, "sessions"}})
// REQUIRES: one of these names.
inline PatternKind PatternNamed(const std::string& name) { return Json(name).get<PatternKind>(); }
// Returns whether a user begins no request before the last one has ended, which makes none late.
inline bool IsClosedLoop(PatternKind kind) { return kind == PatternKind::kSessions; }

inline constexpr uint32_t kMaxPatternUsers = 100'000;
inline constexpr uint64_t kMaxPatternRequests = 200'000;

struct PatternOptions {
  PatternKind kind = PatternKind::kPm1753;
  uint32_t users = 280;
  uint32_t workers = 8;  // a user's requests all go to one
  double requests_per_second = 40;
  double seconds = 30;
  uint64_t seed = 1;

  // pm1753. A user's document has this many chunks, evenly distributed, and the conversation grows
  // to twice that.
  std::array<uint32_t, 2> document_chunks = {12, 22};  // at least and at most
  double written_share = 0.08;  // of all chunks recalled and stored
  double burst_every_seconds = 5;
  double burst_share = 0.2;  // of the time
  double burst_rate = 2;     // times the average
  uint32_t burst_requests_at_once = 5;

  // sessions. Only whole chunks of tokens are stored.
  uint32_t rounds = 10;
  uint64_t tokens_per_chunk = 256;
  uint64_t system_prompt_tokens = 1'000;
  std::array<uint64_t, 2> history_tokens = {4'000, 6'000};  // at least and at most
  uint64_t question_tokens = 100, answer_tokens = 100;

  KVKEEP_FIELDS(kind, users, workers, requests_per_second, seconds, seed, document_chunks,
                written_share, burst_every_seconds, burst_share, burst_rate, burst_requests_at_once,
                rounds, tokens_per_chunk, system_prompt_tokens, history_tokens, question_tokens,
                answer_tokens)
  // InvalidArgument names the option. No more than kMaxPatternRequests requests.
  absl::Status Validate() const;
};

// Returns the options for a report, without the ones that this kind does not use.
Json ToReport(const PatternOptions& options);

struct PromptRequest {
  double at_seconds = 0;  // since the start; a closed loop may be late
  uint32_t user = 0;
  bool in_burst = false;
  std::vector<uint64_t> prompt;  // chunks, in order
  std::vector<uint64_t> answer;  // stored after that
};

struct Pattern {
  std::vector<uint64_t> before;         // chunks that are present at the start, in order of arrival
  std::vector<PromptRequest> requests;  // by time

  // Returns how many different chunks there are at the end.
  uint64_t DistinctChunks() const;
};

// REQUIRES: options.Validate().ok().
Pattern MakePattern(const PatternOptions& options);
inline uint32_t WorkerOf(const PatternOptions& options, uint32_t user) {
  return user % options.workers;
}

// Returns the position of a chunk in its prompt.
uint64_t PositionOf(uint64_t chunk);

}  // namespace kvkeep::bench
