// Attacks that a hostile or buggy client may try with the descriptor of a segment. Each attack
// really tries; the result names those that worked. Run on an unprotected file it names them all,
// which is how the tests know that the attacks are real.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kvkeep {

// With the descriptor itself, then with what reopening it for writing through /proc gives.
// `bytes`: the length of the file, whole pages.
std::vector<std::string> SuccessfulAttacks(int fd, size_t bytes);

// The names of all attacks, as SuccessfulAttacks gives them on an unprotected file.
std::vector<std::string> AllAttacks();

}  // namespace kvkeep
