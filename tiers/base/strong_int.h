// StrongInt: an integer that cannot be mixed up with another one.
//
//   using BlockNumber = StrongInt<struct BlockNumberTag, uint64_t>;
//   BlockNumber first(7);
//   first.value();            // the bare integer, where arithmetic is really meant
#pragma once

#include <absl/strings/str_cat.h>

#include <compare>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>

namespace kvkeep {

template <typename Tag, typename T>
class StrongInt {
 public:
  using ValueType = T;

  constexpr StrongInt() = default;  // zero
  constexpr explicit StrongInt(T value) : value_(value) {}

  constexpr T value() const { return value_; }
  constexpr auto operator<=>(const StrongInt&) const = default;

  StrongInt& operator++() {
    ++value_;
    return *this;
  }

  std::string ToString() const { return absl::StrCat(value_); }
  friend std::ostream& operator<<(std::ostream& out, StrongInt v) { return out << +v.value_; }
  template <typename H>
  friend H AbslHashValue(H h, StrongInt v) {
    return H::combine(std::move(h), v.value_);
  }

 private:
  T value_ = 0;
};

}  // namespace kvkeep
