#include "tests/sick/conversations.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep::sick {

Zipf::Zipf(size_t size) {
  double sum = 0;
  for (size_t n = 0; n < size; ++n) up_to_.push_back(sum += 1.0 / static_cast<double>(n + 1));
  for (double& up_to : up_to_) up_to /= sum;
}

size_t Zipf::Draw(SeededRandom& random) const {
  constexpr uint64_t kSteps = uint64_t{1} << 53;
  const double at = static_cast<double>(random.Below(kSteps)) / static_cast<double>(kSteps);
  const auto found = std::upper_bound(up_to_.begin(), up_to_.end(), at);
  return std::min<size_t>(static_cast<size_t>(found - up_to_.begin()), up_to_.size() - 1);
}

Conversations::Conversations(const Options& options)
    : options_(options),
      speakers_(options.users),
      prompts_(options.prompts),
      random_(options.seed),
      users_(options.users),
      next_id_(options.first_id) {
  KVKEEP_CHECK(options.users > 0 && options.prompts > 0 && options.turns > 0 &&
               options.most_chunks_a_turn > 0);
  KVKEEP_CHECK(options.first_id >= options.prompts * options.prompt_chunks);
}

TraceRequest Conversations::Next() {
  User& user = users_[speakers_.Draw(random_)];
  if (user.turns == options_.turns) user = User();
  if (user.turns == 0) {
    const uint64_t prompt = prompts_.Draw(random_);
    for (size_t i = 0; i < options_.prompt_chunks; ++i) {
      user.said.push_back(prompt * options_.prompt_chunks + i);
    }
  }
  ++user.turns;
  for (uint64_t left = random_.Between(1, options_.most_chunks_a_turn); left > 0; --left) {
    user.said.push_back(next_id_++);
  }
  return {.hash_ids = user.said};
}

}  // namespace kvkeep::sick
