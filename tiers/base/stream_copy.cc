#include "tiers/base/stream_copy.h"

// The thread sanitizer of GCC does not see these stores.
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
#define KVKEEP_STREAMS
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

#ifdef KVKEEP_STREAMS
constexpr size_t kLineBytes = 64;
constexpr size_t kPageBytes = 4096;
constexpr size_t kPages = 4;  // at a time: two are slower, eight no faster

void StreamLine(std::byte* to, const std::byte* from) {
  const auto* in = reinterpret_cast<const __m128i*>(from);
  auto* out = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
  const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
  _mm_stream_si128(out, a);
  _mm_stream_si128(out + 1, b);
  _mm_stream_si128(out + 2, c);
  _mm_stream_si128(out + 3, d);
}

// Copies kPages consecutive runs of `bytes` each.
template <bool kFetch>
void StreamPages(std::byte* to, const std::byte* from, size_t bytes, const std::byte* ahead) {
  for (size_t line = 0; line < bytes; line += kLineBytes) {
    for (size_t at = line; at < kPages * bytes; at += bytes) {
      if constexpr (kFetch) _mm_prefetch(reinterpret_cast<const char*>(ahead + at), _MM_HINT_T0);
      StreamLine(to + at, from + at);
    }
  }
}
#endif

}  // namespace

void StreamCopy(std::byte* to, std::span<const std::byte> from, const std::byte* ahead) {
#ifdef KVKEEP_STREAMS
  if (from.size() >= kStreamBytes) {
    const auto begin = reinterpret_cast<uintptr_t>(to);
    const auto other = reinterpret_cast<uintptr_t>(from.data());
    KVKEEP_CHECK(begin + from.size() <= other || other + from.size() <= begin);
    // The stores want whole lines of the target.
    const size_t head = -reinterpret_cast<uintptr_t>(to) % kLineBytes;
    std::memcpy(to, from.data(), head);
    to += head;
    from = from.subspan(head);
    while (from.size() >= kPages * kLineBytes) {
      const size_t bytes = std::min(kPageBytes, from.size() / kPages / kLineBytes * kLineBytes);
      if (ahead != nullptr) {
        StreamPages<true>(to, from.data(), bytes, ahead);
        ahead += kPages * bytes;
      } else {
        StreamPages<false>(to, from.data(), bytes, nullptr);
      }
      to += kPages * bytes;
      from = from.subspan(kPages * bytes);
    }
    _mm_sfence();  // these stores wait for no release
  }
#else
  static_cast<void>(ahead);
#endif
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

}  // namespace kvkeep
