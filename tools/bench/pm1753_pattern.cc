#include <algorithm>
#include <numeric>

#include "tools/bench/pattern.h"

namespace kvkeep::bench {
namespace {

// What a user has said up to now: his document, and what was added since he began on it anew.
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
    // The burst is the middle of each period, so that a short run has one too.
    for (double start = 0; start < options_.seconds; start += period) {
      const double from = start + period * (1 - share) / 2, to = from + period * share;
      AddPhase(start, from, /*burst=*/false, &pattern);
      AddPhase(from, to, /*burst=*/true, &pattern);
      AddPhase(to, start + period, /*burst=*/false, &pattern);
    }
    return pattern;
  }

 private:
  // Gaps forget where they began: each phase may draw them anew.
  void AddPhase(double from, double to, bool burst, Pattern* pattern) {
    const uint32_t at_once = burst ? options_.burst_requests_at_once : 1;
    const double mean = at_once / Rate(burst);
    const double end = std::min(to, options_.seconds);
    for (double at = from + draws_.Gap(mean); at < end; at += draws_.Gap(mean)) {
      for (uint32_t i = 0; i < at_once; ++i) pattern->requests.push_back(NextRequest(at, burst));
    }
  }
  // Of requests, so that bursts and what lies between them come to the average.
  double Rate(bool burst) const {
    const double share = options_.burst_share;
    const double between = (1 - share * options_.burst_rate) / (1 - share);
    return options_.requests_per_second * (burst ? options_.burst_rate : between);
  }

  // Users begin anywhere in their conversations, and all that they have said is there.
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
    // What is added belongs to this time; the document is the same each time.
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
    // What is owed in whole chunks, over all users: the share holds however short a prompt is.
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

}  // namespace

Pattern MakePm1753(const PatternOptions& options) { return Pm1753(options).Make(); }

}  // namespace kvkeep::bench
