#include <algorithm>

#include "tools/bench/pattern.h"

namespace kvkeep::bench {
namespace {

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
  // Tokens when that round's answer is there.
  uint64_t AfterRound(const Session& session, uint32_t round) const {
    return options_.system_prompt_tokens + session.history_tokens +
           (round + 1) * (options_.question_tokens + options_.answer_tokens);
  }
  // From that chunk on, the whole ones of so many tokens.
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

Pattern MakeSessions(const PatternOptions& options) { return Sessions(options).Make(); }

}  // namespace kvkeep::bench
