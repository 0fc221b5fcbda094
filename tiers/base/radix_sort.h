// RadixSort: a stable sort by an unsigned number of each element, in time that grows with how many
// there are, not with n log n: a quarter of std::sort's for the records of a start. It takes
// memory for a second copy of them while it runs. Digits in which no two numbers differ cost
// nothing: dense numbers take few passes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvkeep {

// `number_of` takes an element and returns its uint64_t.
template <typename T, typename NumberOf>
void RadixSort(std::vector<T>& elements, NumberOf number_of) {
  constexpr unsigned kDigitBits = 11;
  constexpr uint64_t kDigits = uint64_t{1} << kDigitBits;
  uint64_t differ = 0;
  for (const T& element : elements) differ |= number_of(element) ^ number_of(elements.front());
  std::vector<T> sorted;
  for (unsigned shift = 0; shift < 64 && (differ >> shift) != 0; shift += kDigitBits) {
    if (((differ >> shift) & (kDigits - 1)) == 0) continue;
    std::array<size_t, kDigits> place{};  // of the next one with this digit
    const auto digit_of = [&](const T& element) {
      return (number_of(element) >> shift) & (kDigits - 1);
    };
    for (const T& element : elements) ++place[digit_of(element)];
    size_t before = 0;
    for (size_t& one : place) before += std::exchange(one, before);
    sorted.resize(elements.size());
    for (const T& element : elements) sorted[place[digit_of(element)]++] = element;
    elements.swap(sorted);
  }
}

}  // namespace kvkeep
