#include "tools/bench/client/pattern.h"

#include <absl/container/flat_hash_set.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

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

uint64_t PositionOf(uint64_t chunk) { return chunk & ((1u << kPositionBits) - 1); }

namespace {

// Returns the number of the chunk at `position` of a prompt. `run`: chunks that belong together.
uint64_t ChunkNumber(uint64_t run, uint64_t position) {
  KVKEEP_CHECK(position < 1u << kPositionBits);
  return run << kPositionBits | position;
}

// A sequence of pseudorandom numbers, the same for the same seed.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}

  double Share() {  // 0 to 1, 1 never; 53 bits: as many as a double has
    return static_cast<double>(tools::MixIds(seed_, drawn_++) >> 11) * 0x1p-53;
  }
  uint64_t Between(uint64_t lo, uint64_t hi) {  // both may come
    return lo + static_cast<uint64_t>(Share() * static_cast<double>(hi - lo + 1));
  }
  double Gap(double mean) { return -mean * std::log1p(-Share()); }  // exponentially distributed

 private:
  const uint64_t seed_;
  uint64_t drawn_ = 0;
};

// ---------------------------------------------------------------- pm1753

// A user's conversation so far: the document, and the chunks added since the user began it anew.
struct Conversation {
  uint32_t document_chunks = 0;
  uint32_t added_chunks = 0;
  uint64_t times_anew = 0;
};

class Pm1753 {
 public:
  explicit Pm1753(const PatternOptions& options) : options_(options), draws_(options.seed) {}

  Pattern Make() {
    Pattern pattern;
    Begin(&pattern);
    const double period = options_.burst_every_seconds, share = options_.burst_share;
    // The burst is in the middle of each period, so that a short run has one too.
    for (double start = 0; start < options_.seconds; start += period) {
      const double from = start + period * (1 - share) / 2, to = from + period * share;
      AddPhase(start, from, /*burst=*/false, &pattern);
      AddPhase(from, to, /*burst=*/true, &pattern);
      AddPhase(to, start + period, /*burst=*/false, &pattern);
    }
    return pattern;
  }

 private:
  // Gaps have no memory, so each phase may draw them anew.
  void AddPhase(double from, double to, bool burst, Pattern* pattern) {
    const uint32_t at_once = burst ? options_.burst_requests_at_once : 1;
    const double mean = at_once / Rate(burst);
    const double end = std::min(to, options_.seconds);
    for (double at = from + draws_.Gap(mean); at < end; at += draws_.Gap(mean)) {
      for (uint32_t i = 0; i < at_once; ++i) pattern->requests.push_back(NextRequest(at, burst));
    }
  }
  // Returns the rate of requests; bursts and the time between them add up to the average.
  double Rate(bool burst) const {
    const double share = options_.burst_share;
    const double between = (1 - share * options_.burst_rate) / (1 - share);
    return options_.requests_per_second * (burst ? options_.burst_rate : between);
  }

  // Users begin anywhere in their conversations, and all their earlier chunks are present.
  void Begin(Pattern* pattern) {
    conversations_.resize(options_.users);
    for (uint32_t user = 0; user < options_.users; ++user) {
      Conversation& one = conversations_[user];
      one.document_chunks = static_cast<uint32_t>(
          draws_.Between(options_.document_chunks[0], options_.document_chunks[1]));
      one.added_chunks = static_cast<uint32_t>(draws_.Between(0, one.document_chunks - 1));
      const std::vector<uint64_t> said = PromptOf(user);
      pattern->before.insert(pattern->before.end(), said.begin(), said.end());
    }
  }

  uint64_t Chunk(uint32_t user, uint32_t position) const {
    const Conversation& one = conversations_[user];
    // Added chunks belong to this time; the document is the same each time.
    const uint64_t anew = position < one.document_chunks ? 0 : one.times_anew + 1;
    return ChunkNumber(anew * kMaxPatternUsers + user, position);
  }
  std::vector<uint64_t> PromptOf(uint32_t user) const {
    const Conversation& one = conversations_[user];
    std::vector<uint64_t> chunks;
    for (uint32_t i = 0; i < one.document_chunks + one.added_chunks; ++i) {
      chunks.push_back(Chunk(user, i));
    }
    return chunks;
  }

  uint32_t NextUser() {
    if (order_.empty()) {
      order_.resize(options_.users);
      std::iota(order_.begin(), order_.end(), 0);
      for (size_t i = order_.size(); i > 1; --i) {
        std::swap(order_[i - 1], order_[draws_.Between(0, i - 1)]);
      }
    }
    const uint32_t user = order_.back();
    order_.pop_back();
    return user;
  }

  PromptRequest NextRequest(double at, bool in_burst) {
    PromptRequest request{.at_seconds = at, .user = NextUser(), .in_burst = in_burst};
    Conversation& one = conversations_[request.user];
    request.prompt = PromptOf(request.user);
    // Owed chunks add up over all users until they are whole, so the share also holds for short
    // prompts.
    owed_ += static_cast<double>(request.prompt.size()) * options_.written_share /
             (1 - options_.written_share);
    const auto added = static_cast<uint32_t>(owed_);
    owed_ -= added;
    const uint32_t from = one.document_chunks + one.added_chunks;
    for (uint32_t i = 0; i < added; ++i) request.answer.push_back(Chunk(request.user, from + i));
    one.added_chunks += added;
    if (one.added_chunks >= one.document_chunks) {
      one.added_chunks = 0;
      ++one.times_anew;
    }
    return request;
  }

  const PatternOptions& options_;
  Draws draws_;
  std::vector<Conversation> conversations_;
  std::vector<uint32_t> order_;  // of users, the next one last
  double owed_ = 0;              // chunks that are to be stored
};

// ---------------------------------------------------------------- sessions

constexpr uint64_t kSystemPrompt = 0;  // the run of chunks that all share

struct Session {
  uint64_t run = 0;
  uint64_t history_tokens = 0;
};

class Sessions {
 public:
  explicit Sessions(const PatternOptions& options) : options_(options), draws_(options.seed) {}

  Pattern Make() {
    Pattern pattern;
    const uint64_t shared = options_.system_prompt_tokens / options_.tokens_per_chunk;
    for (uint64_t i = 0; i < shared; ++i) pattern.before.push_back(ChunkNumber(kSystemPrompt, i));
    const double gap = options_.users / options_.requests_per_second;
    for (uint32_t user = 0; user < options_.users; ++user) {
      AddUser(user, gap, shared, &pattern);
    }
    std::stable_sort(
        pattern.requests.begin(), pattern.requests.end(),
        [](const PromptRequest& a, const PromptRequest& b) { return a.at_seconds < b.at_seconds; });
    return pattern;
  }

 private:
  void AddUser(uint32_t user, double gap, uint64_t shared, Pattern* pattern) {
    Session session = NewSession();
    uint32_t round = user % options_.rounds;
    if (round > 0) {  // the system prompt is there anyway
      const std::vector<uint64_t> said = Chunks(session, 0, AfterRound(session, round - 1), shared);
      pattern->before.insert(
          pattern->before.end(),
          said.begin() + static_cast<std::ptrdiff_t>(std::min<uint64_t>(shared, said.size())),
          said.end());
    }
    for (double at = gap * user / options_.users; at < options_.seconds; at += gap) {
      if (round == options_.rounds) {
        session = NewSession();
        round = 0;
      }
      const uint64_t asked = AfterRound(session, round) - options_.answer_tokens;
      PromptRequest request{.at_seconds = at, .user = user};
      request.prompt = Chunks(session, 0, asked, shared);
      request.answer =
          Chunks(session, asked / options_.tokens_per_chunk, AfterRound(session, round), shared);
      pattern->requests.push_back(std::move(request));
      ++round;
    }
  }

  Session NewSession() {
    return {
        .run = ++runs_,
        .history_tokens = draws_.Between(options_.history_tokens[0], options_.history_tokens[1])};
  }
  // Returns the tokens at the end of a round.
  uint64_t AfterRound(const Session& session, uint32_t round) const {
    return options_.system_prompt_tokens + session.history_tokens +
           (round + 1) * (options_.question_tokens + options_.answer_tokens);
  }
  // Returns the whole chunks of `tokens` tokens, from chunk `first` on.
  std::vector<uint64_t> Chunks(const Session& session, uint64_t first, uint64_t tokens,
                               uint64_t shared) const {
    std::vector<uint64_t> chunks;
    for (uint64_t i = first; i < tokens / options_.tokens_per_chunk; ++i) {
      chunks.push_back(ChunkNumber(i < shared ? kSystemPrompt : session.run, i));
    }
    return chunks;
  }

  const PatternOptions& options_;
  Draws draws_;
  uint64_t runs_ = kSystemPrompt;
};

}  // namespace

Pattern MakePattern(const PatternOptions& options) {
  KVKEEP_CHECK(options.Validate().ok());
  return options.kind == PatternKind::kPm1753 ? Pm1753(options).Make()
                                              : Sessions(options).Make();
}

}  // namespace kvkeep::bench
