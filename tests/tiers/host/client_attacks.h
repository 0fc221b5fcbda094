// Attacks that a hostile or buggy client may try with the descriptor of a segment. Each attack is
// really tried; the result names those that worked. On an unprotected file all of them do, which
// shows that the attacks are real.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kvkeep {

// Tries them with the descriptor itself, and with one that reopens it for writing through /proc.
// `bytes`: the length of the file, whole pages.
std::vector<std::string> SuccessfulAttacks(int fd, size_t bytes);

// Returns the names of all attacks, as SuccessfulAttacks gives them on an unprotected file.
std::vector<std::string> AllAttacks();

}  // namespace kvkeep
