// What another process of ours holds and does, as /proc says. Free functions.
#pragma once

#include <absl/status/statusor.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace kvkeep::bench {

// Its resident pages that are not of shared memory: without a memfd arena, without a mount's.
// NotFound: there is no such process.
absl::StatusOr<uint64_t> ResidentBesideSharedBytes(pid_t pid);

// Those that are, of shared memory: an arena, as far as it is touched, among them. NotFound.
absl::StatusOr<uint64_t> ResidentSharedBytes(pid_t pid);

// How often its threads gave up their CPU of their own will, and so were woken up again, by the
// threads' names; of those that live now. NotFound.
absl::StatusOr<std::map<std::string, uint64_t>> WakeUpsOf(pid_t pid);

}  // namespace kvkeep::bench
