// Whether this is a build with sanitizers: everything is several times slower there, so that times
// mean nothing and what repeats much of the same does less of it.
#pragma once

namespace kvkeep {

#if defined(KVKEEP_SANITIZED)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace kvkeep
