// What /proc tells of a process: the memory that it holds, and how often its threads were woken.
// Free functions. NotFound: there is no such process, it has ended, or /proc does not tell.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <string>

namespace kvkeep::bench {

// Its resident pages that are not of shared memory: without a memfd arena, without a mount's.
absl::StatusOr<uint64_t> ResidentBesideSharedBytes(int pid);

// Those that are: an arena, as far as it is touched.
absl::StatusOr<uint64_t> ResidentSharedBytes(int pid);

// How often its threads gave up their CPU of their own will, and so were woken up again, by the
// threads' names; of those that live now.
absl::StatusOr<std::map<std::string, uint64_t>> WakeUpsOf(int pid);

}  // namespace kvkeep::bench
