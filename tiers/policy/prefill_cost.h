// PrefillCost: the seconds that a model takes to compute a prompt, as hits save them.
//
// Each token passes the linear layers: 2 operations for each parameter. Its attention reads every
// token up to itself: 4 operations for each layer, query head and dimension of a head. So n tokens
// take
//
//     n * seconds_per_token + n * (n + 1) / 2 * seconds_per_pair
//
// after A. Chowdhery et al., "PaLM", 2022, appendix B, whose 6N + 12LHQT of a training step are
// three times the forward pass. The deeper a chunk lies, the more it costs.
#pragma once

#include <cstdint>

namespace kvkeep {

struct PrefillCost {
  double seconds_per_token = 0;
  double seconds_per_pair = 0;  // of a token and one that it reads
  uint64_t tokens_per_chunk = 512;

  // Returns the seconds for the first `chunks` of a prompt.
  double Of(uint64_t chunks) const {
    const double tokens = static_cast<double>(chunks) * static_cast<double>(tokens_per_chunk);
    return tokens * (seconds_per_token + (tokens + 1) / 2 * seconds_per_pair);
  }
};

}  // namespace kvkeep
