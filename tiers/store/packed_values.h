// ImageShape and TenantId in the bytes that their limits need, and numbers of 8 bytes without their
// alignment, for the millions that a chunk table or a start holds. They convert both ways by
// themselves.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "tiers/base/check.h"
#include "tiers/base/image.h"
#include "tiers/base/units.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

struct PackedShape {
  uint32_t payload_bytes = 0;
  uint16_t tail_bytes = 0;

  PackedShape() = default;
  PackedShape(const ImageShape& shape)  // NOLINT: it is one
      : payload_bytes(shape.payload_bytes), tail_bytes(static_cast<uint16_t>(shape.tail_bytes)) {
    static_assert(kMaxTailBytes <= UINT16_MAX);
    KVKEEP_CHECK(tail_bytes == shape.tail_bytes);
  }
  operator ImageShape() const {  // NOLINT: it is one
    return {.payload_bytes = payload_bytes, .tail_bytes = tail_bytes};
  }
  BlockCount blocks() const { return ImageShape(*this).blocks(); }
  size_t pieces() const { return ImageShape(*this).pieces(); }
} __attribute__((packed, aligned(2)));

class PackedTenant {
 public:
  PackedTenant() = default;
  PackedTenant(TenantId tenant)  // NOLINT: it is one
      : number_(static_cast<uint16_t>(tenant.value())) {
    KVKEEP_CHECK(number_ == tenant.value());
  }
  operator TenantId() const { return TenantId(number_); }  // NOLINT: it is one
  uint32_t value() const { return number_; }

 private:
  uint16_t number_ = 0;
};

// A number of 8 bytes, or a strong type of one, that lies at a multiple of 4.
template <typename Number>
class Halved {
 public:
  Halved() : Halved(Number(0)) {}
  Halved(Number number)  // NOLINT: it is one
      : halves_(std::bit_cast<std::array<uint32_t, 2>>(number)) {}
  operator Number() const { return std::bit_cast<Number>(halves_); }  // NOLINT: it is one

 private:
  std::array<uint32_t, 2> halves_;
};

}  // namespace kvkeep::store_internal
