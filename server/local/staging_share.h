// How much staging memory a session gets: the policy, as a function of numbers.
//
// A session begins with little. Once its puts wait for room its client asks for more, by size. It
// gets at most its part: the limit divided by the sessions that have some, with itself and one to
// come. So memory is left for the next session, and the first has no more than others can have.
// Only a session that is alone gets all it names, as an engine that keeps buffers wants; for puts a
// client names no more than half.
//
// The daemon takes nothing back from a session: its client gives memory back when it is idle. A
// client that finds none left loses no put: the daemon reads memory of the client's own. Clients
// before version 6 of the local protocol can do neither. They get what they name, or a quarter of
// what is left.
#pragma once

#include <cstdint>
#include <span>

namespace kvkeep {

struct StagingWish {
  uint64_t bytes = 0;
  uint64_t chunk_bytes = 0;  // of the session's largest namespace; 0: sizes vary
  uint64_t most_bytes = 0;   // limit of one session
  bool named = false;        // by the client; else what a session begins with
  bool shares = false;       // its client can ask again, and can put without staging memory
};

// The staging memory of the other sessions under one limit.
struct StagingUse {
  uint64_t limit_bytes = 0;
  uint64_t held_bytes = 0;
  uint64_t sessions = 0;  // with some of it
  // True if tenants share the limit. They also have limits of their own, so one tenant's sessions
  // make no part of another's smaller.
  bool tenants = false;
};

// Returns the least memory that is of use to a client that shares; to any other, one page.
uint64_t LeastStaging(const StagingWish& wish);
// Returns whole pages; 0 if not even LeastStaging is left.
uint64_t StagingShare(const StagingWish& wish, std::span<const StagingUse> uses);

}  // namespace kvkeep
