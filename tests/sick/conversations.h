// Conversations: engines' requests over a long time. Users take turns; each request has the whole
// conversation, after one of a few system prompts. The next speaker, and a conversation's system
// prompt, follow Zipf's law. A conversation that has had its turns is over, and another begins.
//
// The same options give the same requests for ever. Not thread-safe.
#pragma once

#include <vector>

#include "tests/fakes/seeded_random.h"
#include "tiers/policy/trace.h"

namespace kvkeep::sick {

// Draws 0 to size - 1, the n-th with 1 / (n + 1) of the first one's chance.
class Zipf {
 public:
  explicit Zipf(size_t size);
  size_t Draw(SeededRandom& random) const;

 private:
  std::vector<double> up_to_;  // sums of the weights, of 1
};

class Conversations {
 public:
  struct Options {
    uint64_t seed = 1;
    uint64_t first_id = 0;  // of users' chunks; above the shared prompts' ids
    size_t users = 20;
    size_t prompts = 12;
    size_t prompt_chunks = 6;
    size_t turns = 8;
    size_t most_chunks_a_turn = 3;
  };
  explicit Conversations(const Options& options);

  TraceRequest Next();

 private:
  struct User {
    std::vector<uint64_t> said;
    size_t turns = 0;
  };

  const Options options_;
  const Zipf speakers_, prompts_;
  SeededRandom random_;
  std::vector<User> users_;
  uint64_t next_id_;
};

}  // namespace kvkeep::sick
