// PrefixSearch: finds, by few questions, how many of a run of keys are there, from the first.
//
// Writers put a key after those before it, so presence is mostly a prefix: a key that is there
// stands for all before it, unless one of them was found to be absent. Questions come in rounds, as
// each round costs a way there and back: both ends of the run and the keys 1, 2, 4, ... away from
// them; then points in the rest; then the rest. A lookup that finds all or nothing, or all but a
// few, is over after one or two rounds. It stops at a limit and then counts what is sure.
//
// With `tail`: if the first key is absent and the last one there, the last keys are asked for, each
// by itself, as many as the limit allows. Layers with a sliding window put only these.
//
// A plain value. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvkeep {

struct PrefixSearchOptions {
  uint32_t max_questions = 48, max_rounds = 3;
  uint32_t points = 16;      // in a round after the first
  bool first_alone = false;  // the first key is asked for alone: most searches find none lately
};

class PrefixSearch {
 public:
  PrefixSearch(size_t keys, const PrefixSearchOptions& options, bool tail = false);

  // Returns the positions of the next round, rising; empty: the search is over. The caller answers
  // each by Tell before the next call.
  std::vector<size_t> NextRound();
  void Tell(size_t position, bool present);

  // Returns how many keys, from the first, are believed to be there.
  size_t leading() const { return leading_; }
  // Returns whether leading() is 0 and the last keys were asked for: each answer holds for its key
  // alone.
  bool is_tail() const { return is_tail_; }
  uint32_t questions() const { return questions_; }
  uint32_t rounds() const { return rounds_; }

 private:
  std::vector<size_t> BothEnds() const;
  std::vector<size_t> Spread(size_t most) const;
  std::vector<size_t> Tail(size_t most) const;

  const PrefixSearchOptions options_;
  const size_t keys_;
  const bool wants_tail_;
  uint32_t questions_ = 0, rounds_ = 0, told_ = 0;
  bool looked_at_ends_ = false, is_tail_ = false;
  size_t leading_ = 0;  // the last that is there, below the first that is not; and one
  size_t absent_;       // the first that is not there; all: none is known
  std::vector<size_t> asked_;
  std::vector<size_t> there_;  // that were said to be there, above leading_ or not
};

}  // namespace kvkeep
